//! The requests of a store, on the connection that the supervisor keeps.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockkit_core::{BackendError, Outcome, Waiting};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::sync::oneshot;

use crate::config::RedisStoreBuilder;
use crate::error::{fault, is_no_script, of_request};
use crate::handshake::{self, Opened};
use crate::scripts::Step;
use crate::subscriptions::Subscriptions;
use crate::supervisor::{Shared, State};

/// The store's end of the connection. Dropping it closes everything.
#[derive(Debug)]
pub(crate) struct Link {
    shared: Arc<Shared>,
    /// The supervisor ends when this is dropped.
    _open: oneshot::Sender<()>,
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
        let shared = Arc::new(Shared::new(config, subscriptions));
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
        let mut config = self.shared.config.clone();
        config.waiting = Waiting::Poll;
        let opened = handshake::open(&config, &self.shared.subscriptions, false).await;
        opened.map_err(|(outcome, why)| fault(operation, outcome, why))
    }

    /// The error of a request.
    pub(crate) fn failure(&self, operation: &'static str, error: &RedisError) -> BackendError {
        of_request(&self.shared.config.address, operation, error)
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

    /// Sends one command.
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
