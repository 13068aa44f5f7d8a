//! A connection of a store to one server, as its requests and the supervisor share it.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::{BackendError, Outcome};
use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};

use crate::admission::Admission;
use crate::config::RedisStoreBuilder;
use crate::error::{Result, fault, of_request};
use crate::handshake::Opened;
use crate::sentinel;
use crate::subscriptions::Subscriptions;

/// How often a connection without requests is checked.
pub(crate) const IDLE_CHECK: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: RedisStoreBuilder,
    /// Of a master of a cluster, which keeps its quarantine there.
    pub(crate) lowest_slot: Mutex<Option<u16>>,
    pub(crate) subscriptions: Arc<Subscriptions>,
    pub(crate) state: watch::Receiver<State>,
    /// Notified when a request has no reply.
    pub(crate) suspicion: Notify,
    /// Notified when the server says that it is not the primary.
    pub(crate) demoted: Notify,
    /// Notified when the server is away, or says that a lock is elsewhere.
    pub(crate) misplaced: Arc<Notify>,
    /// The latest failover of which a Sentinel has told.
    pub(crate) latest_epoch: Arc<AtomicI64>,
    /// Requests under way.
    pub(crate) pending: AtomicU64,
    /// Requests that had a reply.
    pub(crate) replied: AtomicU64,
    /// Whether too few replicas had what a step did, when they were waited for last.
    pub(crate) lacks_replicas: AtomicBool,
    /// Locked by a request that waits for replicas.
    pub(crate) waits: tokio::sync::Mutex<()>,
    /// In milliseconds; zero for no expiry.
    pub(crate) token_ttl: AtomicU64,
}

/// The connection, and what the server does for its requests.
pub(crate) type State = Settled<(MultiplexedConnection, Admission)>;

/// What requests need, if it is there.
#[derive(Clone, Debug)]
pub(crate) enum Settled<T> {
    Pending,
    Ready(T),
    Failed(Outcome, Arc<str>),
}

/// Returns a part of what requests need. Waits while that is pending; fails if the last try failed.
pub(crate) async fn settled<T: Send + Sync, R>(
    state: &watch::Receiver<Settled<T>>,
    operation: &'static str,
    part: impl FnOnce(&T) -> R + Send,
) -> Result<R> {
    let mut state = state.clone();
    let settled = state.wait_for(|state| !matches!(state, Settled::Pending));
    match settled.await.as_deref() {
        Ok(Settled::Ready(value)) => Ok(part(value)),
        Ok(Settled::Failed(outcome, why)) => Err(fault(operation, *outcome, why.as_ref())),
        _ => Err(fault(operation, Outcome::Unavailable, "not connected")),
    }
}

impl Link {
    /// How long a token is kept, in milliseconds; zero for no expiry.
    pub(crate) fn token_ttl(&self) -> u64 {
        self.token_ttl.load(Ordering::Relaxed)
    }

    /// Returns the connection. Waits while one is being made; fails if the last try failed.
    pub(crate) async fn connection(
        &self,
        operation: &'static str,
    ) -> Result<MultiplexedConnection> {
        settled(&self.state, operation, |(connection, _)| connection.clone()).await
    }

    /// What the server does for the requests that follow, as [`connection`](Self::connection). If another connection
    /// carries them, the server finds that it is not the one that is meant.
    pub(crate) async fn admission(&self, operation: &'static str) -> Result<Admission> {
        settled(&self.state, operation, |(_, admission)| admission.clone()).await
    }

    /// Makes a second connection, without messages, that ends when it is dropped.
    pub(crate) async fn another(&self, operation: &'static str) -> Result<Opened> {
        let opened = sentinel::open(&self.config, None, &self.latest_epoch).await;
        opened.map_err(|(outcome, why)| fault(operation, outcome, why))
    }

    pub(crate) fn failure(&self, operation: &'static str, error: &RedisError) -> BackendError {
        of_request(&self.config, operation, error)
    }
}

/// A request under way. If it is dropped without a reply, the connection is checked.
pub(crate) struct Request<'a> {
    link: &'a Link,
    replied: bool,
}

impl<'a> Request<'a> {
    pub(crate) fn new(link: &'a Link) -> Self {
        link.pending.fetch_add(1, Ordering::Relaxed);
        Self {
            link,
            replied: false,
        }
    }

    /// An error of the server is a reply too.
    pub(crate) fn replied<T>(mut self, reply: &Result<T, RedisError>) {
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
