//! The requests of a store, on the connection that the supervisor keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockkit_core::{BackendError, Outcome, Waiting};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::{Notify, watch};

use crate::config::{RedisStoreBuilder, TokenTtl};
use crate::error::{fault, is_demoted, is_no_script, of_request};
use crate::handshake::{self, Opened};
use crate::scripts::Step;
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
    /// In milliseconds; zero for no expiry.
    pub(crate) token_ttl: AtomicU64,
}

/// Whether there is a connection.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Connecting,
    Up(MultiplexedConnection),
    Down(Outcome, Arc<str>),
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
            token_ttl: AtomicU64::new(token_ttl),
        }
    }

    /// How long a token is kept, in milliseconds; zero for no expiry.
    pub(crate) fn token_ttl(&self) -> u64 {
        self.token_ttl.load(Ordering::Relaxed)
    }

    /// Returns the connection. Waits while one is being made; fails if the last try failed.
    pub(crate) async fn connection(
        &self,
        operation: &'static str,
    ) -> Result<MultiplexedConnection, BackendError> {
        if let State::Up(connection) = &*self.state.borrow() {
            return Ok(connection.clone());
        }
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| !matches!(state, State::Connecting));
        match settled.await.as_deref() {
            Ok(State::Up(connection)) => Ok(connection.clone()),
            Ok(State::Down(outcome, why)) => Err(fault(operation, *outcome, why.as_ref())),
            _ => Err(fault(operation, Outcome::Unavailable, "not connected")),
        }
    }

    /// Makes a second connection, without messages, that ends when it is dropped.
    pub(crate) async fn another(&self, operation: &'static str) -> Result<Opened, BackendError> {
        let mut config = self.config.clone();
        config.waiting = Waiting::Poll;
        let opened = handshake::open(&config, &self.subscriptions).await;
        opened.map_err(|(outcome, why)| fault(operation, outcome, why))
    }

    /// The error of a request.
    pub(crate) fn failure(&self, operation: &'static str, error: &RedisError) -> BackendError {
        of_request(&self.config.address, operation, error)
    }

    /// Runs a step.
    pub(crate) async fn step(
        &self,
        step: &Step,
        keys: &[impl AsRef<[u8]> + Sync],
        arguments: &[impl AsRef<[u8]> + Sync],
    ) -> Result<Value, BackendError> {
        let operation = step.name();
        let mut reply = self
            .ask(operation, &step.by_digest(keys, arguments))
            .await?;
        if reply.as_ref().is_err_and(is_no_script) {
            reply = self.ask(operation, &step.by_text(keys, arguments)).await?;
        }
        reply.map_err(|error| self.failure(operation, &error))
    }

    /// Notices a demoted server that keeps its connections open.
    fn check_primary(&self, reply: Result<Value, RedisError>) -> Result<Value, RedisError> {
        if reply.as_ref().is_err_and(is_demoted) {
            self.demoted.notify_one();
        }
        reply
    }

    /// Sends one command.
    async fn ask(
        &self,
        operation: &'static str,
        command: &Cmd,
    ) -> Result<Result<Value, RedisError>, BackendError> {
        let mut connection = self.connection(operation).await?;
        let request = Request::new(self);
        let reply = connection.send_packed_command(command).await;
        request.replied(&reply);
        Ok(self.check_primary(reply.and_then(Value::extract_error)))
    }

    /// Runs a step several times, with these keys and arguments, in one pipeline; returns one reply for
    /// each.
    pub(crate) async fn steps(
        &self,
        operation: &'static str,
        step: &Step,
        calls: &[(Vec<String>, Vec<String>)],
    ) -> Vec<Result<Value, BackendError>> {
        let by_digest = calls
            .iter()
            .map(|(keys, words)| step.by_digest(keys, words));
        let replies = match self.batch(operation, by_digest.collect()).await {
            Ok(replies) => replies,
            Err(error) => return vec![Err(error); calls.len()],
        };
        let unknown = replies.iter().enumerate();
        let unknown = unknown.filter(|(_, reply)| reply.as_ref().is_err_and(is_no_script));
        let unknown: Vec<usize> = unknown.map(|(at, _)| at).collect();
        let failure = |error| self.failure(operation, &error);
        let results = replies.into_iter().map(|reply| reply.map_err(failure));
        let mut results: Vec<_> = results.collect();
        if unknown.is_empty() {
            return results;
        }
        let by_text = unknown.iter().map(|&at| &calls[at]);
        let by_text = by_text.map(|(keys, words)| step.by_text(keys, words));
        match self.batch(operation, by_text.collect()).await {
            Ok(replies) => {
                for (at, reply) in unknown.into_iter().zip(replies) {
                    results[at] = reply.map_err(failure);
                }
            }
            Err(error) => unknown
                .into_iter()
                .for_each(|at| results[at] = Err(error.clone())),
        }
        results
    }

    /// Sends several commands in one pipeline; returns one reply for each.
    async fn batch(
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
        let request = Request::new(self);
        let replies = connection.send_packed_commands(&pipeline, 0, count).await;
        request.replied(&replies);
        let replies = replies.map_err(|error| self.failure(operation, &error))?;
        let look = |reply: Value| self.check_primary(reply.extract_error());
        Ok(replies.into_iter().map(look).collect())
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
