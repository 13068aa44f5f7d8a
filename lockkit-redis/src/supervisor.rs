//! The task that keeps a connection to the server.
//!
//! One connection carries all requests, and with RESP3 the messages too. With RESP2 they come on a
//! second one, and both are replaced together. The client library never replaces a silent connection.
//! Therefore this task notices the end or the silence of a connection, makes a new one, subscribes again,
//! and lets every waiter try again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use lockkit_core::Outcome;
use lockkit_core::store::Backoff;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::connection::{Link, State};
use crate::handshake::{Opened, Source, open};

/// How often a connection without requests is checked.
const IDLE_CHECK: Duration = Duration::from_secs(15);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that ends sooner and without a reply counts as failed. One to a demoted primary is kept
/// for this long.
const SETTLED: Duration = Duration::from_secs(1);

impl Link {
    /// Makes connections, one after the other, until the store is dropped.
    pub(crate) async fn supervise(&self) {
        let mut backoff = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
        // The first failure after a useful connection costs no pause.
        let mut at_once = true;
        let mut resp3_worked = false;
        loop {
            let opening = open(&self.config, &self.subscriptions, resp3_worked).await;
            let (outcome, why) = match opening {
                Ok(opened) => {
                    resp3_worked |= matches!(opened.source, Source::Same);
                    if opened.volatile {
                        self.token_ttl.store(0, Ordering::Relaxed);
                    }
                    let settled = Instant::now() + SETTLED;
                    let replied = self.replied.load(Ordering::Relaxed);
                    self.serve(opened, settled).await;
                    self.subscriptions.closed();
                    let useful = self.replied.load(Ordering::Relaxed) != replied;
                    if useful || Instant::now() >= settled {
                        at_once = true;
                        backoff.reset();
                    }
                    if std::mem::take(&mut at_once) {
                        self.state.send_replace(State::Connecting);
                        continue;
                    }
                    let why = "the connection ended as soon as it was ready";
                    let why = format!("{why} ({})", self.config.address);
                    (Outcome::Unavailable, why)
                }
                Err(failure) => failure,
            };
            self.state.send_replace(State::Down(outcome, why.into()));
            at_once = false;
            sleep(backoff.pause()).await;
        }
    }

    /// Supervises a connection until it ends. Dropping its parts fails its requests.
    async fn serve(&self, mut opened: Opened, settled: Instant) {
        if !matches!(opened.source, Source::None) {
            self.subscriptions.opened();
        }
        self.state
            .send_replace(State::Up(opened.connection.clone()));
        let patience = self.config.response_timeout / 2;
        let mut check = interval(patience.max(Duration::from_millis(10)));
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut seen = self.replied.load(Ordering::Relaxed);
        let mut idle = Duration::ZERO;
        // A notification that the previous server left.
        self.demoted.notified().now_or_never();
        let mut demoted = false;
        loop {
            tokio::select! {
                biased;
                () = opened.ended() => return,
                // The name may resolve to the new primary now.
                () = sleep_until(settled), if demoted => return,
                () = self.demoted.notified(), if !demoted => {
                    demoted = true;
                    continue;
                }
                () = self.suspicion.notified() => {}
                () = self.subscriptions.wanted.notified() => {
                    let wanted = self.subscriptions.take_wanted();
                    if !self.subscribe(&mut opened, wanted).await {
                        return;
                    }
                    continue;
                }
                () = self.subscriptions.unheeded.notified() => {
                    if !self.unsubscribe(&mut opened).await {
                        return;
                    }
                    continue;
                }
                _ = check.tick() => {
                    idle += patience;
                    let replied = self.replied.load(Ordering::Relaxed);
                    let moved = std::mem::replace(&mut seen, replied) != replied;
                    let waits = self.subscriptions.waiters.has_watches();
                    let awaited = self.pending.load(Ordering::Relaxed) > 0 || waits;
                    // Replies on the first connection say nothing about the second.
                    let moves = moved && !(waits && matches!(opened.source, Source::Other(_)));
                    if !self.unsubscribe(&mut opened).await {
                        return;
                    }
                    if moves || !(awaited || idle >= IDLE_CHECK) {
                        continue;
                    }
                }
            }
            idle = Duration::ZERO;
            if !matches!(timeout(patience, opened.ping()).await, Ok(true)) {
                return;
            }
        }
    }

    /// Returns false if the connection is lost.
    async fn subscribe(&self, opened: &mut Opened, wanted: Vec<String>) -> bool {
        if wanted.is_empty() {
            return true;
        }
        let limit = self.config.response_timeout / 2;
        match timeout(limit, opened.subscribe_allowed(&wanted)).await {
            // If one is forbidden, waiters notice Redisson's releases at their next recheck.
            Ok(Ok(allowed)) => {
                self.subscriptions.subscribed(&allowed);
                true
            }
            Ok(Err(_)) | Err(_) => false,
        }
    }

    async fn unsubscribe(&self, opened: &mut Opened) -> bool {
        let idle = self.subscriptions.take_idle();
        if idle.is_empty() {
            return true;
        }
        let limit = self.config.response_timeout / 2;
        match timeout(limit, opened.unsubscribe(&idle)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => !error.is_io_error(),
            Err(_) => false,
        }
    }
}
