//! The task that reads the events of watched keys, from one stream for the whole store.
//!
//! Watches report only deletions, because no key is ever created before one that exists.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    EventType, WatchFilterType, WatchOptions, WatchRequestSender, WatchResponse,
    WatchResponseStream,
};
use lockkit_core::store::{Backoff, lock};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::link::PAUSES;
use crate::shared::Shared;

/// How often the task looks for unused watches and for unanswered requests.
const TICK: Duration = Duration::from_millis(500);
/// A stream that lasted this long was sound.
const SOUND: Duration = Duration::from_secs(1);

type Wanted = [(i64, Arc<str>)];

impl Shared {
    /// Reads the events of keys until it is dropped.
    pub(crate) async fn read_events(self: Arc<Self>) {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            while lock(&self.watches).len() == 0 {
                self.wanted.notified().await;
            }
            let began = Instant::now();
            self.read_stream().await;
            lock(&self.watches).all_closed();
            if began.elapsed() >= SOUND {
                backoff.reset();
            }
            sleep(backoff.pause()).await;
        }
    }

    /// Reads one stream until it ends.
    async fn read_stream(self: &Arc<Self>) {
        let mut changes = self.link.changes();
        let wanted = lock(&self.watches).take_wanted();
        let Some(((number, key), others)) = wanted.split_first() else {
            return;
        };
        let opening = self
            .link
            .ask("watch", self.link.request_timeout(), |client| async move {
                let mut client = client.watch_client();
                client.watch(key.as_bytes(), Some(options(*number))).await
            });
        let Ok(stream) = opening.await else {
            return;
        };
        let (mut sender, mut stream) = stream.split();
        if ask(&mut sender, others).await.is_none() {
            return;
        }
        // The stream ends at once if its connection was given up meanwhile.
        tokio::select! {
            () = self.read_responses(&mut sender, &mut stream) => {}
            _ = changes.changed() => {}
        }
    }

    async fn read_responses(
        self: &Arc<Self>,
        sender: &mut WatchRequestSender,
        stream: &mut WatchResponseStream,
    ) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The oldest request without an answer, and when it was first seen.
        let mut waits_for: Option<(i64, Instant)> = None;
        loop {
            let (mut wanted, mut ended) = (Vec::new(), Vec::new());
            tokio::select! {
                response = stream.message() => match response {
                    // This watch is not named. The stream keeps the token of its user, which has ended.
                    Ok(Some(response)) if response.created() && response.canceled() => return,
                    Ok(Some(response)) => self.take_response(&response),
                    // The server has closed it, or the connection has failed.
                    _ => return,
                },
                () = self.wanted.notified() => {
                    wanted = lock(&self.watches).take_wanted();
                }
                _ = ticks.tick() => {
                    // This asks for watches that have ended. To ask at once would be a busy loop.
                    let mut watches = lock(&self.watches);
                    (ended, wanted) = (watches.end_unused(), watches.take_wanted());
                    let now = Instant::now();
                    let same = |number| waits_for.filter(|(other, _)| *other == number);
                    waits_for = watches.unanswered().map(|number| same(number).unwrap_or((number, now)));
                    if waits_for.is_some_and(|(_, since)| since + self.link.request_timeout() <= now) {
                        self.link.give_up_current();
                        return;
                    }
                }
            }
            for watch in ended {
                if sender.cancel(watch).await.is_err() {
                    return;
                }
            }
            if ask(sender, &wanted).await.is_none() {
                return;
            }
        }
    }

    fn take_response(self: &Arc<Self>, response: &WatchResponse) {
        let number = response.watch_id();
        if response.canceled() {
            // It was compacted or refused, if it was not cancelled by us. The next tick asks for it again.
            lock(&self.watches).closed(number);
            return;
        }
        if response.created() {
            if let Some(header) = response.header() {
                let revision = header.revision();
                self.report(|watches| watches.opened(number, revision));
            }
            return;
        }
        let deletion = |event: &etcd_client::Event| {
            let deletion = event.event_type() == EventType::Delete;
            let revision = event.kv()?.mod_revision();
            deletion.then_some(revision)
        };
        if let Some(last) = response.events().iter().filter_map(deletion).max() {
            self.report(|watches| watches.report(number, last));
        }
    }
}

fn options(number: i64) -> WatchOptions {
    WatchOptions::new()
        .with_watch_id(number)
        .with_filters([WatchFilterType::NoPut])
}

async fn ask(sender: &mut WatchRequestSender, wanted: &Wanted) -> Option<()> {
    for (number, key) in wanted {
        let asked = sender.watch(key.as_bytes(), Some(options(*number)));
        asked.await.ok()?;
    }
    Some(())
}
