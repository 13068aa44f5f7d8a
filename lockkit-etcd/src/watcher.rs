//! The task that reads the events of watched keys, from one stream for the whole store.
//!
//! Watches report only deletions, because no key is ever created before one that exists.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    EventType, WatchFilterType, WatchOptions, WatchRequestSender, WatchResponse,
    WatchResponseStream,
};
use lockkit_core::store::Backoff;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::queue::{Listing, before};
use crate::shared::Shared;
use crate::watches::Read;

/// How often the task looks for unused watches and for unanswered requests.
const TICK: Duration = Duration::from_millis(500);
/// The shortest and the longest pause after a stream or a read that failed.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// A stream that lasted this long was sound.
const SOUND: Duration = Duration::from_secs(1);

type Wanted = [(i64, Arc<str>)];

/// The task that reads the events of keys.
pub(crate) struct Watcher(pub(crate) Arc<Shared>);

impl Watcher {
    /// Runs until it is dropped.
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
        loop {
            while self.0.waiters.counts().1 == 0 {
                self.0.waiters.work.notified().await;
            }
            let began = Instant::now();
            self.stream().await;
            self.0.waiters.with_watches(|watches| watches.all_closed());
            if began.elapsed() >= SOUND {
                backoff.reset();
            }
            sleep(backoff.pause()).await;
        }
    }

    /// Reads one stream until it ends.
    async fn stream(&self) {
        let mut epoch = self.0.link.epoch();
        let wanted = self.0.waiters.with_watches(|watches| watches.take_wanted());
        let Some(((number, key), others)) = wanted.split_first() else {
            return;
        };
        let opening = self.0.link.ask(
            "watch",
            self.0.link.request_timeout(),
            |client| async move {
                let mut client = client.watch_client();
                client.watch(key.as_bytes(), Some(options(*number))).await
            },
        );
        let Ok(stream) = opening.await else {
            return;
        };
        let (mut sender, mut stream) = stream.split();
        if ask(&mut sender, others).await.is_none() {
            return;
        }
        // The stream ends at once if its connection was given up meanwhile.
        tokio::select! {
            () = self.read_stream(&mut sender, &mut stream) => {}
            _ = epoch.changed() => {}
        }
    }

    async fn read_stream(&self, sender: &mut WatchRequestSender, stream: &mut WatchResponseStream) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unanswered_since = None;
        loop {
            let (mut wanted, mut ended) = (Vec::new(), Vec::new());
            tokio::select! {
                response = stream.message() => match response {
                    Ok(Some(response)) => self.take(&response),
                    // The server has closed it, or the connection has failed.
                    _ => return,
                },
                () = self.0.waiters.work.notified() => {
                    self.read();
                    wanted = self.0.waiters.with_watches(|watches| watches.take_wanted());
                }
                _ = ticks.tick() => {
                    // This asks for watches that were refused. To ask at once would be a busy loop.
                    let unanswered;
                    (ended, wanted, unanswered) = self.0.waiters.with_watches(|watches| {
                        (watches.end_unused(), watches.take_wanted(), watches.is_unanswered())
                    });
                    if !unanswered {
                        unanswered_since = None;
                    } else if *unanswered_since.get_or_insert_with(Instant::now)
                        + self.0.link.request_timeout() <= Instant::now()
                    {
                        self.0.link.give_up_current();
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

    fn take(&self, response: &WatchResponse) {
        let number = response.watch_id();
        if response.canceled() {
            // It was compacted or refused, if it was not cancelled by us.
            self.0
                .waiters
                .with_watches(|watches| watches.closed(number));
            if response.compact_revision() != 0 {
                self.0.waiters.work.notify_one();
            }
            return;
        }
        if response.created() {
            if let Some(header) = response.header() {
                let revision = header.revision();
                self.0
                    .waiters
                    .report(|watches| watches.opened(number, revision));
            }
            return;
        }
        let deletion = |event: &etcd_client::Event| {
            let deletion = event.event_type() == EventType::Delete;
            let revision = event.kv()?.mod_revision();
            deletion.then_some(revision)
        };
        if let Some(last) = response.events().iter().filter_map(deletion).max() {
            self.0
                .waiters
                .report(|watches| watches.report(number, last));
        }
    }

    /// Starts the reads that waiters ask for.
    fn read(&self) {
        for wanted in self.0.waiters.with_watches(|watches| watches.take_reads()) {
            // Detached: it ends with the watch of its ticket.
            drop(self.0.runtime.spawn(read(Arc::clone(&self.0), wanted)));
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

/// Reads the keys before that of a waiter. The state of one server is enough, if it is recent: no key is ever
/// created before one that exists.
async fn read(shared: Arc<Shared>, read: Read) {
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    let mut serializable = true;
    while shared.waiters.is_reading(&read) {
        let mut options = before(read.created);
        if serializable {
            options = options.with_serializable();
        }
        let answer = shared
            .link
            .get("watch", read.directory.as_bytes(), &options)
            .await;
        if let Ok(answer) = &answer {
            let listing = Listing::read(answer);
            if listing.revision >= read.least {
                shared.waiters.read(&read, listing);
                return;
            }
        }
        // The state of that server is old, so the next read asks the leader.
        let old = std::mem::take(&mut serializable) && answer.is_ok();
        if !old {
            sleep(backoff.pause()).await;
        }
    }
}
