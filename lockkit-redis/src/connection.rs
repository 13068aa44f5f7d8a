//! The requests of a store, on the connection that the supervisor keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockkit_core::{BackendError, Outcome, Waiting};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Notify, watch};

use crate::admission::Admission;
use crate::config::{RedisStoreBuilder, TokenTtl};
use crate::error::{fault, is_demoted, is_no_script, of_request};
use crate::handshake::Opened;
use crate::reply::{Reply, unreadable};
use crate::scripts::Step;
use crate::sentinel;
use crate::subscriptions::Subscriptions;

/// The connection of a store, as its requests and the supervisor share it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: RedisStoreBuilder,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) state: watch::Sender<State>,
    /// Notified when a request has no reply.
    pub(crate) suspicion: Notify,
    /// Notified when the server says that it is not the primary.
    pub(crate) demoted: Notify,
    /// Requests under way.
    pub(crate) pending: AtomicU64,
    /// Requests that had a reply.
    pub(crate) replied: AtomicU64,
    /// How often the server did not know a script, whose request was then written again behind later ones.
    pub(crate) rewritten: AtomicU64,
    /// In milliseconds; zero for no expiry.
    pub(crate) token_ttl: AtomicU64,
}

/// Whether there is a connection.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Connecting,
    Up(MultiplexedConnection, Admission),
    Down(Outcome, Arc<str>),
}

/// How many replicas have a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    wanted: u8,
    replicas: u64,
}

impl Acked {
    /// Fails if these are too few for a lease to count. A failover may lose it.
    pub(crate) fn check(self, operation: &'static str) -> Result<(), BackendError> {
        let Self { wanted, replicas } = self;
        if replicas >= wanted.into() {
            return Ok(());
        }
        let why = format!("{replicas} replicas have it, `acks={wanted}` are wanted");
        Err(fault(operation, Outcome::Indeterminate, why))
    }
}

impl Link {
    pub(crate) fn new(config: RedisStoreBuilder, subscriptions: Subscriptions) -> Self {
        let token_ttl = match config.token_ttl {
            TokenTtl::After(ttl) => u64::try_from(ttl.as_millis()).unwrap_or(0),
            TokenTtl::Never => 0,
        };
        Self {
            config,
            subscriptions: Arc::new(subscriptions),
            state: watch::Sender::new(State::Connecting),
            suspicion: Notify::new(),
            demoted: Notify::new(),
            pending: AtomicU64::new(0),
            replied: AtomicU64::new(0),
            rewritten: AtomicU64::new(0),
            token_ttl: AtomicU64::new(token_ttl),
        }
    }

    /// How long a token is kept, in milliseconds; zero for no expiry.
    pub(crate) fn token_ttl(&self) -> u64 {
        self.token_ttl.load(Ordering::Relaxed)
    }

    /// Returns the connection. Waits while one is being made; fails if the last try failed.
    async fn connection(
        &self,
        operation: &'static str,
    ) -> Result<MultiplexedConnection, BackendError> {
        self.up(operation, |connection, _| connection.clone()).await
    }

    /// What the server does for the requests that follow, as [`connection`](Self::connection). If another connection
    /// carries them, the server finds that it is not the one that is meant.
    pub(crate) async fn admission(
        &self,
        operation: &'static str,
    ) -> Result<Admission, BackendError> {
        self.up(operation, |_, admission| admission.clone()).await
    }

    async fn up<T>(
        &self,
        operation: &'static str,
        part: impl FnOnce(&MultiplexedConnection, &Admission) -> T,
    ) -> Result<T, BackendError> {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting));
        match settled.await.as_deref() {
            Ok(State::Up(connection, admission)) => Ok(part(connection, admission)),
            Ok(State::Down(outcome, why)) => Err(fault(operation, *outcome, why.as_ref())),
            _ => Err(fault(operation, Outcome::Unavailable, "not connected")),
        }
    }

    /// Makes a second connection, without messages, that ends when it is dropped.
    pub(crate) async fn another(&self, operation: &'static str) -> Result<Opened, BackendError> {
        let mut config = self.config.clone();
        config.waiting = Waiting::Poll;
        let opened = sentinel::open(&config, &self.subscriptions).await;
        opened.map_err(|(outcome, why)| fault(operation, outcome, why))
    }

    /// The error of a request.
    pub(crate) fn failure(&self, operation: &'static str, error: &RedisError) -> BackendError {
        of_request(&self.config.address, operation, error)
    }

    /// Runs a step.
    pub(crate) async fn run(&self, step: &Step, command: Cmd) -> Result<Reply, BackendError> {
        let mut replies = self.run_all(step, [command]).await;
        replies.pop().unwrap_or_else(|| Err(unreadable(step.name)))
    }

    /// Runs a step by one command that may start leases, as [`run_leases`](Self::run_leases).
    pub(crate) async fn run_lease(
        &self,
        step: &Step,
        command: Cmd,
    ) -> Result<(Reply, Acked), BackendError> {
        let (mut replies, acked) = self.run_leases(step, [command]).await;
        let reply = replies
            .pop()
            .unwrap_or_else(|| Err(unreadable(step.name)))?;
        Ok((reply, acked))
    }

    /// Runs a step by each of these commands, in one pipeline; returns one reply for each.
    pub(crate) async fn run_all(
        &self,
        step: &Step,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> Vec<Result<Reply, BackendError>> {
        self.run_then(step, commands, None).await.0
    }

    /// As [`run_all`](Self::run_all), for commands that may start leases. Also returns whether enough replicas have
    /// them.
    pub(crate) async fn run_leases(
        &self,
        step: &Step,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> (Vec<Result<Reply, BackendError>>, Acked) {
        let wanted = self.config.acks;
        let patience = self.config.response_timeout / 4;
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(patience.as_millis());
        let wait = (wanted > 0).then_some(wait);
        let (replies, acked) = self.run_then(step, commands, wait).await;
        let replicas = acked.and_then(|reply| Reply::from(reply.ok()?).as_u64());
        let replicas = replicas.unwrap_or(0);
        (replies, Acked { wanted, replicas })
    }

    /// Runs a step by each of these commands, and behind them another command, in one pipeline.
    async fn run_then(
        &self,
        step: &Step,
        commands: impl IntoIterator<Item = Cmd>,
        last: Option<Cmd>,
    ) -> (
        Vec<Result<Reply, BackendError>>,
        Option<Result<Value, RedisError>>,
    ) {
        let commands: Vec<Cmd> = commands.into_iter().collect();
        let mut connection = match self.connection(step.name).await {
            Ok(connection) => connection,
            Err(error) => return (vec![Err(error); commands.len()], None),
        };
        let all = commands.iter().cloned().chain(last.clone());
        let mut replies = self.send(&mut connection, all).await;
        let mut of_last = last.as_ref().and_then(|_| replies.pop());
        let unknown = |at: &usize| replies[*at].as_ref().is_err_and(is_no_script);
        let unknown: Vec<usize> = (0..replies.len()).filter(unknown).collect();
        if !unknown.is_empty() {
            self.rewritten.fetch_add(1, Ordering::Relaxed);
            let texts = unknown.iter().map(|&at| step.with_text(&commands[at]));
            let mut again = self.send(&mut connection, texts.chain(last.clone())).await;
            of_last = last.and_then(|_| again.pop());
            for (at, reply) in unknown.into_iter().zip(again) {
                replies[at] = reply;
            }
        }
        let failure = |error| self.failure(step.name, &error);
        let read = |reply: Result<Value, _>| reply.map(Reply::from).map_err(failure);
        (replies.into_iter().map(read).collect(), of_last)
    }

    /// Sends commands; returns one reply for each.
    async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        commands: impl IntoIterator<Item = Cmd>,
    ) -> Vec<Result<Value, RedisError>> {
        let mut pipeline = Pipeline::new();
        for command in commands {
            pipeline.add_command(command);
        }
        let count = pipeline.len();
        let request = Request::new(self);
        let replies = connection.send_packed_commands(&pipeline, 0, count).await;
        request.replied(&replies);
        let replies: Vec<_> = match replies {
            Ok(replies) => replies.into_iter().map(Value::extract_error).collect(),
            Err(error) => vec![Err(error); count],
        };
        // A demoted server may keep its connections open.
        let demoted = |reply: &Result<_, _>| reply.as_ref().is_err_and(is_demoted);
        if replies.iter().any(demoted) {
            self.demoted.notify_one();
        }
        replies
    }
}

/// A request under way. If it is dropped without a reply, the connection is checked.
struct Request<'a> {
    link: &'a Link,
    replied: bool,
}

impl<'a> Request<'a> {
    fn new(link: &'a Link) -> Self {
        link.pending.fetch_add(1, Ordering::Relaxed);
        Self {
            link,
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
        self.link.pending.fetch_sub(1, Ordering::Relaxed);
        if self.replied {
            self.link.replied.fetch_add(1, Ordering::Relaxed);
        } else {
            self.link.suspicion.notify_one();
        }
    }
}
