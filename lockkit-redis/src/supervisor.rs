//! The task that keeps a connection to the server.
//!
//! One connection carries all requests, and with RESP3 the messages too. With RESP2 they come on a
//! second one, and both are replaced together. The client library never replaces a silent connection.
//! Therefore this task notices the end or the silence of a connection, makes a new one, subscribes again,
//! and lets every waiter try again.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use lockkit_core::store::{Backoff, lock};
use lockkit_core::{ClientId, Outcome, Waiting};
use redis::RedisError;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::admission::{Admission, admit};
use crate::config::{Protocol, RedisStoreBuilder, TokenTtl};
use crate::connection::{IDLE_CHECK, Link, State};
use crate::handshake::{Failure, Opened, no_connection};
use crate::keys;
use crate::sentinel::open;
use crate::shards;
use crate::subscriptions::{Subscriptions, Waiters};

pub(crate) const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Where another server can take over at any moment.
const LONGEST_FAILOVER_PAUSE: Duration = Duration::from_millis(250);
/// A connection that ends sooner and without a reply counts as failed. One to a demoted primary is kept
/// for this long.
const SETTLED: Duration = Duration::from_secs(1);

/// The connection has ended, or is to be replaced.
struct Ended;

async fn notify_regularly(notify: &Notify) -> Infallible {
    loop {
        sleep(LONGEST_FAILOVER_PAUSE).await;
        notify.notify_one();
    }
}

impl Link {
    /// Begins to connect. The connection ends with the task that is returned.
    pub(crate) fn start(
        config: RedisStoreBuilder,
        lowest_slot: Option<u16>,
        waiters: Arc<Waiters>,
        misplaced: Arc<Notify>,
        runtime: &Handle,
    ) -> (Arc<Self>, JoinSet<()>) {
        let channel = keys::client_channel(ClientId::random());
        let subscriptions = Subscriptions::new(channel, config.acks == 0, waiters);
        let token_ttl = match config.token_ttl {
            TokenTtl::After(ttl) => u64::try_from(ttl.as_millis()).unwrap_or(0),
            TokenTtl::Never => 0,
        };
        // With its task, which a cluster or a runtime may end, the sender ends: nobody waits for a connection then.
        let (sender, state) = watch::channel(State::Pending);
        let link = Arc::new(Self {
            config,
            lowest_slot: Mutex::new(lowest_slot),
            subscriptions: Arc::new(subscriptions),
            state,
            suspicion: Notify::new(),
            demoted: Notify::new(),
            misplaced,
            latest_epoch: Arc::default(),
            pending: AtomicU64::new(0),
            replied: AtomicU64::new(0),
            lacks_replicas: AtomicBool::new(false),
            waits: tokio::sync::Mutex::new(()),
            token_ttl: AtomicU64::new(token_ttl),
        });
        let (supervised, mut supervisor) = (Arc::clone(&link), JoinSet::new());
        supervisor.spawn_on(async move { supervised.supervise(sender).await }, runtime);
        (link, supervisor)
    }

    /// Makes connections, one after the other, until the store is dropped.
    async fn supervise(&self, state: watch::Sender<State>) {
        let longest = match self.config.fails_over() {
            true => LONGEST_FAILOVER_PAUSE,
            false => LONGEST_PAUSE,
        };
        let mut backoff = Backoff::new(SHORTEST_PAUSE, longest);
        // The first failure after a useful connection costs no pause.
        let mut at_once = true;
        let mut config = self.config.clone();
        let pushed = config.waiting == Waiting::Push;
        let subscriptions = pushed.then_some(&self.subscriptions);
        loop {
            let opening = timeout(config.connect_timeout, async {
                let mut opened = open(&config, subscriptions, &self.latest_epoch).await?;
                // One that the previous server left. What comes from now on is about this one.
                self.demoted.notified().now_or_never();
                let admission = self.admission_of(&mut opened).await?;
                Ok((opened, admission))
            });
            let opened = tokio::select! {
                opened = opening => opened.unwrap_or_else(|_| Err(no_connection(&config))),
                // A silent master of a cluster may have a successor, long before `connect_timeout`.
                never = notify_regularly(&self.misplaced) => match never {},
            };
            let (outcome, why) = match opened {
                Ok((opened, admission)) => {
                    if opened.second.is_none() {
                        // It is known: whatever fails from now on, HELLO is not the reason.
                        config.protocol = Protocol::Resp3;
                    }
                    if opened.volatile {
                        self.token_ttl.store(0, Ordering::Relaxed);
                    }
                    let settled = Instant::now() + SETTLED;
                    let replied = self.replied.load(Ordering::Relaxed);
                    tokio::select! {
                        Err(Ended) = self.serve(&state, opened, admission, settled) => {}
                        never = shards::listen(self), if self.config.clustered => match never {},
                    }
                    let useful = self.replied.load(Ordering::Relaxed) != replied;
                    if useful || Instant::now() >= settled {
                        at_once = true;
                        backoff.reset();
                    }
                    if std::mem::take(&mut at_once) {
                        state.send_replace(State::Pending);
                        continue;
                    }
                    let why = "the connection ended as soon as it was ready";
                    let why = format!("{why} ({})", self.config.address);
                    (Outcome::Unavailable, why)
                }
                Err(failure) => failure,
            };
            state.send_replace(State::Failed(outcome, why.into()));
            self.misplaced.notify_one();
            at_once = false;
            sleep(backoff.pause()).await;
        }
    }

    async fn admission_of(&self, opened: &mut Opened) -> Result<Admission, Failure> {
        let key = match self.config.clustered {
            true => lock(&self.lowest_slot).map(keys::primary_of),
            false => Some(keys::PRIMARY.to_owned()),
        };
        admit(&self.config, key.as_deref(), opened).await
    }

    /// Supervises a connection until it ends. Dropping its parts fails its requests.
    async fn serve(
        &self,
        state: &watch::Sender<State>,
        mut opened: Opened,
        admission: Admission,
        settled: Instant,
    ) -> Result<Infallible, Ended> {
        let mut again = admission.again;
        state.send_replace(State::Ready((opened.connection.clone(), admission)));
        self.subscriptions.opened();
        let patience = self.config.patience();
        let mut check = interval(patience.max(Duration::from_millis(10)));
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // With the patience behind it, shorter than a quarantine.
        let longest_idle = match self.config.quarantine_length() {
            Some(length) => IDLE_CHECK.min(length / 2),
            None => IDLE_CHECK,
        };
        let mut seen = self.replied.load(Ordering::Relaxed);
        let mut idle = Duration::ZERO;
        let mut demoted = false;
        loop {
            tokio::select! {
                biased;
                () = opened.ended() => return Err(Ended),
                // The name may resolve to the new primary now.
                () = sleep_until(settled), if demoted => return Err(Ended),
                () = self.demoted.notified(), if !demoted => {
                    demoted = true;
                    continue;
                }
                () = sleep_until(again.unwrap_or(settled)), if again.is_some() => {
                    if lock(&self.lowest_slot).is_some() {
                        // It may be another one by now.
                        self.misplaced.notify_one();
                    }
                    let asked = timeout(patience, self.admission_of(&mut opened));
                    // It may have been demoted meanwhile. If it refuses for another reason, a new connection says it.
                    let Ok(Ok(admission)) = asked.await else { return Err(Ended) };
                    again = admission.again;
                    state.send_replace(State::Ready((opened.connection.clone(), admission)));
                    continue;
                }
                () = self.suspicion.notified() => {}
                // Before the subscriptions, of which there may always be more.
                _ = check.tick() => {
                    self.unsubscribe(&mut opened).await?;
                    idle += patience;
                    let replied = self.replied.load(Ordering::Relaxed);
                    let moved = std::mem::replace(&mut seen, replied) != replied;
                    let waits = self.subscriptions.waiters.has_watches();
                    let awaited = self.pending.load(Ordering::Relaxed) > 0 || waits;
                    // Replies on the first connection say nothing about the second.
                    let moves = moved && !(waits && opened.second.is_some());
                    if moves || !(awaited || idle >= longest_idle) {
                        continue;
                    }
                }
                () = self.subscriptions.wanted.notified() => {
                    self.subscribe(&mut opened).await?;
                    continue;
                }
                () = self.subscriptions.unheeded.notified() => {
                    self.unsubscribe(&mut opened).await?;
                    continue;
                }
            }
            idle = Duration::ZERO;
            self.in_time(opened.ping()).await?;
        }
    }

    async fn subscribe(&self, opened: &mut Opened) -> Result<(), Ended> {
        let wanted = self.subscriptions.take_wanted();
        if !wanted.is_empty() {
            // If one is forbidden, waiters notice Redisson's releases at their next recheck.
            let allowed = self.in_time(opened.subscribe_allowed(&wanted)).await?;
            self.subscriptions.subscribed(&allowed);
        }
        Ok(())
    }

    async fn unsubscribe(&self, opened: &mut Opened) -> Result<(), Ended> {
        let idle = self.subscriptions.take_idle();
        if !idle.is_empty() {
            self.in_time(opened.unsubscribe(&idle)).await?;
        }
        Ok(())
    }

    /// Waits for the reply to a request of this task. An error of the server is a reply, but has no value.
    async fn in_time<T: Default>(
        &self,
        request: impl Future<Output = Result<T, RedisError>>,
    ) -> Result<T, Ended> {
        match timeout(self.config.patience(), request).await {
            Ok(Err(error)) if error.is_io_error() => Err(Ended),
            Ok(reply) => Ok(reply.unwrap_or_default()),
            Err(_) => Err(Ended),
        }
    }
}
