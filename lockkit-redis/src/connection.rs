//! The connection, and the task that replaces it.
//!
//! One connection carries all requests, and with RESP3 the messages too. With RESP2 they come on a
//! second one, and both are replaced together. The client library never replaces a silent connection.
//! Therefore a task notices the end or the silence of a connection, makes a new one, subscribes again,
//! and lets every waiter try again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use lockkit_core::store::Backoff;
use lockkit_core::{BackendError, Outcome};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::config::{RedisStoreBuilder, TokenTtl};
use crate::error::{fault, is_demoted, is_no_script, of_request_to};
use crate::handshake::{self, Opened, Source, open};
use crate::scripts::Step;
use crate::subscriptions::Subscriptions;

/// How often a connection without requests is checked.
const IDLE_CHECK: Duration = Duration::from_secs(15);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A connection that ends sooner and without a reply counts as failed. One to a demoted primary is kept
/// for this long.
const SETTLED: Duration = Duration::from_secs(1);

/// The store's end of the connection. Dropping it closes everything.
#[derive(Debug)]
pub(crate) struct Link {
    shared: Arc<Shared>,
    /// The supervisor ends when this is dropped.
    _open: oneshot::Sender<()>,
}

#[derive(Debug)]
struct Shared {
    config: RedisStoreBuilder,
    state: watch::Sender<State>,
    subscriptions: Arc<Subscriptions>,
    /// Notified when a request has no reply.
    suspicion: Notify,
    /// Notified when the server says that it is not the primary.
    demoted: Notify,
    /// Requests under way.
    pending: AtomicU64,
    /// Requests that had a reply.
    replied: AtomicU64,
    /// In milliseconds; zero for no expiry.
    token_ttl: AtomicU64,
}

#[derive(Clone, Debug)]
enum State {
    Connecting,
    Up(MultiplexedConnection),
    Down(Outcome, Arc<str>),
}

impl Link {
    /// Connects, and spawns the supervisor in the current runtime.
    pub(crate) async fn connect(
        config: RedisStoreBuilder,
        subscriptions: Arc<Subscriptions>,
    ) -> Result<Self, BackendError> {
        let runtime = tokio::runtime::Handle::try_current()
            .map_err(|error| fault("connect", Outcome::Rejected, error.to_string()))?;
        let (alive, closing) = oneshot::channel();
        let token_ttl = match config.token_ttl {
            TokenTtl::After(ttl) => u64::try_from(ttl.as_millis()).unwrap_or(0),
            TokenTtl::Never => 0,
        };
        let shared = Arc::new(Shared {
            config,
            state: watch::Sender::new(State::Connecting),
            subscriptions,
            suspicion: Notify::new(),
            demoted: Notify::new(),
            pending: AtomicU64::new(0),
            replied: AtomicU64::new(0),
            token_ttl: AtomicU64::new(token_ttl),
        });
        let supervisor = Arc::clone(&shared);
        // Detached: it ends with this link.
        drop(runtime.spawn(async move {
            tokio::select! {
                () = supervisor.run() => {}
                _ = closing => {}
            }
        }));
        let link = Self {
            shared,
            _open: alive,
        };
        link.connection("connect").await?;
        Ok(link)
    }

    /// How long a token is kept, in milliseconds; zero for no expiry.
    pub(crate) fn token_ttl(&self) -> u64 {
        self.shared.token_ttl.load(Ordering::Relaxed)
    }

    /// The longest time without a reply.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.shared.config.response_timeout
    }

    /// Returns the connection. Waits while one is being made; fails if the last try failed.
    async fn connection(
        &self,
        operation: &'static str,
    ) -> Result<MultiplexedConnection, BackendError> {
        if let State::Up(connection) = &*self.shared.state.borrow() {
            return Ok(connection.clone());
        }
        let mut state = self.shared.state.subscribe();
        let settled = state
            .wait_for(|state| !matches!(state, State::Connecting))
            .await
            .map_err(|_| fault(operation, Outcome::Unavailable, "the store was closed"))?;
        match &*settled {
            State::Up(connection) => Ok(connection.clone()),
            State::Down(outcome, why) => Err(fault(operation, *outcome, why.as_ref())),
            State::Connecting => Err(fault(operation, Outcome::Unavailable, "not connected")),
        }
    }

    /// Makes a second connection, without messages, that ends when it is dropped.
    pub(crate) async fn another(&self, operation: &'static str) -> Result<Opened, BackendError> {
        let config = &self.shared.config;
        let limit = config.connect_timeout;
        let opening = timeout(limit, handshake::plain(config, &self.shared.subscriptions)).await;
        opening
            .unwrap_or_else(|_| Err(self.shared.too_slow()))
            .map_err(|(outcome, why)| fault(operation, outcome, why))
    }

    /// Sends one command.
    pub(crate) async fn send(
        &self,
        operation: &'static str,
        command: &Cmd,
    ) -> Result<Value, BackendError> {
        let reply = self.ask(operation, command).await?;
        reply.map_err(|error| self.failure(operation, &error))
    }

    fn failure(&self, operation: &'static str, error: &RedisError) -> BackendError {
        of_request_to(&self.shared.config.address, operation, error)
    }

    /// Runs a step.
    pub(crate) async fn step(
        &self,
        step: &Step,
        keys: &[impl AsRef<[u8]> + Sync],
        arguments: &[impl AsRef<[u8]> + Sync],
    ) -> Result<Value, BackendError> {
        match self
            .ask(step.name(), &step.by_digest(keys, arguments))
            .await?
        {
            Err(error) if is_no_script(&error) => {
                self.send(step.name(), &step.by_text(keys, arguments)).await
            }
            reply => reply.map_err(|error| self.failure(step.name(), &error)),
        }
    }

    async fn ask(
        &self,
        operation: &'static str,
        command: &Cmd,
    ) -> Result<Result<Value, RedisError>, BackendError> {
        let mut connection = self.connection(operation).await?;
        let request = Request::new(&self.shared);
        let reply = connection.send_packed_command(command).await;
        request.replied(&reply);
        Ok(self
            .shared
            .check_primary(reply.and_then(Value::extract_error)))
    }

    /// Sends several commands in one pipeline; returns one reply for each.
    pub(crate) async fn batch(
        &self,
        operation: &'static str,
        commands: Vec<Cmd>,
    ) -> Result<Vec<Result<Value, RedisError>>, BackendError> {
        let mut connection = self.connection(operation).await?;
        let mut pipeline = Pipeline::with_capacity(commands.len());
        let count = commands.len();
        for command in commands {
            pipeline.add_command(command);
        }
        let request = Request::new(&self.shared);
        let replies = connection.send_packed_commands(&pipeline, 0, count).await;
        request.replied(&replies);
        let replies = replies.map_err(|error| self.failure(operation, &error))?;
        let look = |reply: Value| self.shared.check_primary(reply.extract_error());
        Ok(replies.into_iter().map(look).collect())
    }
}

/// A request under way. If it is dropped without a reply, the connection is checked.
struct Request<'a> {
    shared: &'a Shared,
    replied: bool,
}

impl<'a> Request<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.pending.fetch_add(1, Ordering::Relaxed);
        Self {
            shared,
            replied: false,
        }
    }

    /// An error of the server is a reply too.
    fn replied<T>(mut self, reply: &Result<T, RedisError>) {
        self.replied = reply.is_ok();
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.shared.pending.fetch_sub(1, Ordering::Relaxed);
        if self.replied {
            self.shared.replied.fetch_add(1, Ordering::Relaxed);
        } else {
            self.shared.suspicion.notify_one();
        }
    }
}

impl Shared {
    /// Makes connections, one after the other, until the store is dropped.
    async fn run(&self) {
        let mut backoff = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
        // The first failure after a useful connection costs no pause.
        let mut at_once = true;
        let mut resp3_worked = false;
        loop {
            let limit = self.config.connect_timeout;
            let opening =
                timeout(limit, open(&self.config, &self.subscriptions, resp3_worked)).await;
            let (outcome, why) = match opening.unwrap_or_else(|_| Err(self.too_slow())) {
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

    /// Notices a demoted server that keeps its connections open.
    fn check_primary(&self, reply: Result<Value, RedisError>) -> Result<Value, RedisError> {
        if reply.as_ref().is_err_and(is_demoted) {
            self.demoted.notify_one();
        }
        reply
    }

    fn too_slow(&self) -> (Outcome, String) {
        let (limit, address) = (self.config.connect_timeout, &self.config.address);
        let why = format!("no connection within {limit:?} ({address})");
        (Outcome::Unavailable, why)
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
                    let waits = self.subscriptions.waiters().has_watches();
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
        if wanted.is_empty() || matches!(opened.source, Source::None) {
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
