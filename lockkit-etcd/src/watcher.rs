//! The task that hears the events of keys: one stream for all locks that are watched here.
//!
//! A watch is opened without a revision to start from: one from the past is served from a loop that
//! runs ten times in a second. The keys are read once the server says that the watch is open. Only
//! deletions are told: see [`contenders`](crate::contenders).

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    EventType, GetOptions, SortOrder, SortTarget, WatchFilterType, WatchOptions,
    WatchRequestSender, WatchResponse, WatchResponseStream,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::contenders::Gone;
use crate::desk::{Asking, Desk, NEEDED, Reading};
use crate::link::{Link, Opened};
use crate::steps;

const TICK: Duration = Duration::from_millis(500);
/// The pause after a stream or a read that failed; it doubles with each, up to the longest one.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A stream that lasted so long was sound.
const SOUND: Duration = Duration::from_secs(1);

/// Hears the events of keys.
pub(crate) struct Watcher {
    pub(crate) link: Arc<Link>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) runtime: Handle,
}

impl Watcher {
    /// Ends only when it is dropped.
    pub(crate) async fn run(self) {
        let mut pause = PAUSE;
        loop {
            while !self.desk.has_views() {
                self.desk.wanted.notified().await;
            }
            let began = Instant::now();
            self.listen().await;
            self.desk.closed(None);
            self.desk.wanted.notify_one();
            if began.elapsed() >= SOUND {
                pause = PAUSE;
            }
            rest(&mut pause).await;
        }
    }

    /// Hears one stream until it ends.
    async fn listen(&self) {
        let mut epoch = self.link.epoch();
        let Ok(opened) = self.link.connection().await else {
            return;
        };
        let wanted = self.desk.take_wanted();
        let Some((first, others)) = wanted.split_first() else {
            return;
        };
        let limit = self.link.request_timeout();
        let mut client = opened.client.watch_client();
        let stream = client.watch(range(first), Some(options(first)));
        let Ok(Ok(stream)) = timeout(limit, stream).await else {
            self.link.give_up(&Ok(opened));
            return;
        };
        let (mut sender, mut stream) = stream.split();
        if ask(&mut sender, others).await.is_none() {
            return;
        }
        // A connection that was given up since it was looked up ends the stream at once.
        tokio::select! {
            () = self.hear(&mut sender, &mut stream, &opened) => {}
            _ = epoch.changed() => {}
        }
    }

    async fn hear(
        &self,
        sender: &mut WatchRequestSender,
        stream: &mut WatchResponseStream,
        opened: &Opened,
    ) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut unanswered_since = None;
        loop {
            tokio::select! {
                response = stream.message() => match response {
                    Ok(Some(response)) => self.take(&response),
                    // The server has closed it, or the connection has gone.
                    _ => return,
                },
                () = self.desk.wanted.notified() => {
                    self.read();
                    if self.change(sender).await.is_none() {
                        return;
                    }
                }
                _ = ticks.tick() => {
                    // Those that were refused; at once would be a busy loop.
                    if self.change(sender).await.is_none() {
                        return;
                    }
                    if !self.desk.is_unanswered() {
                        unanswered_since = None;
                    } else if *unanswered_since.get_or_insert_with(Instant::now)
                        + self.link.request_timeout() <= Instant::now()
                    {
                        self.link.give_up(&Ok(opened.clone()));
                        return;
                    }
                }
            }
        }
    }

    /// Asks for the watches that are wanted, and ends those that are not needed any more; `None` if the
    /// stream has ended.
    async fn change(&self, sender: &mut WatchRequestSender) -> Option<()> {
        for watch in self.desk.take_ended() {
            sender.cancel(watch).await.ok()?;
        }
        ask(sender, &self.desk.take_wanted()).await
    }

    fn take(&self, response: &WatchResponse) {
        let watch = response.watch_id();
        if response.canceled() {
            // Compacted, or refused: it is asked for again, unless it was we who ended it.
            self.desk.closed(Some(watch));
            if response.compact_revision() != 0 {
                self.desk.wanted.notify_one();
            }
            return;
        }
        if response.created() {
            let revision = response
                .header()
                .map_or(i64::MAX, |header| header.revision());
            self.desk.opened(watch, revision);
            self.read();
            return;
        }
        // Without fragments one response has all events of a revision.
        let gone = response.events().iter().filter_map(|event| {
            let kv = event.kv()?;
            (event.event_type() == EventType::Delete).then_some(())?;
            Some(Gone {
                key: kv.key_str().ok()?.into(),
                revision: kv.mod_revision(),
            })
        });
        self.desk.deleted(watch, gone.collect());
    }

    /// Reads the keys of the locks that want it.
    fn read(&self) {
        for reading in self.desk.take_unread() {
            let reading = read(Arc::clone(&self.link), Arc::clone(&self.desk), reading);
            // Detached: it ends when the watch does.
            drop(self.runtime.spawn(reading));
        }
    }
}

/// The key of a watch, or what the keys begin with.
fn range(asking: &Asking) -> &[u8] {
    asking.key.as_ref().unwrap_or(&asking.directory).as_bytes()
}

fn options(asking: &Asking) -> WatchOptions {
    let options = WatchOptions::new().with_watch_id(asking.watch);
    let options = options.with_filters([WatchFilterType::NoPut]);
    match asking.key {
        Some(_) => options,
        None => options.with_prefix(),
    }
}

async fn ask(sender: &mut WatchRequestSender, wanted: &[Asking]) -> Option<()> {
    for asking in wanted {
        let watch = sender.watch(range(asking), Some(options(asking)));
        watch.await.ok()?;
    }
    Some(())
}

/// Pauses, and for longer the next time; spread, so that clients do not return together.
async fn rest(pause: &mut Duration) {
    sleep(pause.mul_f64(0.75 + fastrand::f64() / 4.0)).await;
    *pause = (*pause * 2).min(LONGEST_PAUSE);
}

/// Reads the keys of a lock whose events come. What one server knows will do for who waits alone behind
/// many, if it knows what was told: nothing is ever created before a key that is there.
async fn read(link: Arc<Link>, desk: Arc<Desk>, reading: Reading) {
    let (mut alone, mut pause) = (reading.until.is_some(), PAUSE);
    while desk.is_reading(&reading) {
        let answer = link
            .ask("watch", link.request_timeout(), |client| {
                let key = reading.directory.as_bytes().to_vec();
                let options = GetOptions::new().with_prefix().with_keys_only();
                let options = match reading.until {
                    Some(until) => options
                        .with_max_create_revision(until)
                        .with_sort(SortTarget::Create, SortOrder::Descend)
                        .with_limit(NEEDED),
                    None => options,
                };
                let options = if alone {
                    options.with_serializable()
                } else {
                    options
                };
                async move { client.kv_client().get(key, Some(options)).await }
            })
            .await;
        match answer {
            Ok(answer) => {
                let revision = answer.header().map_or(0, |header| header.revision());
                if std::mem::take(&mut alone) && revision < reading.least {
                    continue;
                }
                desk.read(&reading, revision, &steps::keys(&answer), answer.more());
                return;
            }
            Err(_) => rest(&mut pause).await,
        }
    }
}
