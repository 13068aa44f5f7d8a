//! The store: maps each call of the contract to its step.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::contract::{
    Attempt, DistributedLock, LockState, Release, Renewal, Ticket, Watch,
};
use lockkit_core::{Capabilities, FencingToken, HolderId, LockName, Outcome};
use tokio::runtime::Handle;
use zookeeper_client::Client;

use crate::config::ZkStoreBuilder;
use crate::error::{BACKEND, Result, fault};
use crate::shared::Shared;

/// Keeps locks in an ensemble of ZooKeeper servers.
///
/// A clone is the same store, with the same session. When the last one is gone the session is closed,
/// and with it all its holds.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_zk::ZkStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = ZkStore::builder().host("127.0.0.1", 2181).connect().await?;
/// let client = LockClient::new(store)?;
/// let guard = client.lock("orders/42")?.acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ZkStore {
    pub(crate) shared: Arc<Shared>,
}

impl ZkStoreBuilder {
    /// Connects and begins a session.
    ///
    /// # Errors
    /// - [`BackendError`](lockkit_core::BackendError) if no member of the ensemble can be reached, or it
    ///   refuses this user, or `token_base` is too large.
    ///
    /// # Cancel safety
    /// Cancel safe: a session without an owner is closed, or ends with its timeout.
    pub async fn connect(self) -> Result<ZkStore> {
        Handle::try_current()
            .map_err(|error| fault("connect", Outcome::Rejected, error.to_string()))?;
        FencingToken::check_base(self.token_base)
            .map_err(|why| fault("connect", Outcome::Rejected, why))?;
        let shared = Arc::new(Shared::connect(self).await?);
        Ok(ZkStore { shared })
    }
}

impl ZkStore {
    /// The options of a store.
    pub fn builder() -> ZkStoreBuilder {
        ZkStoreBuilder::new()
    }

    /// How many tickets hold, wait, or have an attempt without a reply.
    #[must_use]
    pub fn tickets(&self) -> usize {
        self.shared.waiters.len()
    }

    /// The client library's handle of the present session: tests end the session with it.
    #[doc(hidden)]
    #[must_use]
    pub fn client(&self) -> Client {
        self.shared.sessions.present().client.clone()
    }
}

impl fmt::Debug for ZkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkStore")
            .field("config", &self.shared.sessions.config)
            .field("session", &self.shared.sessions.present().id())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for ZkStore {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn address(&self) -> Option<String> {
        Some(self.shared.sessions.config.hosts.join(", "))
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.capabilities
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt> {
        self.shared.attempt(ticket).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>> {
        self.shared.watch_node(ticket.holder).await?;
        Ok(Box::new(self.shared.waiters.watch(ticket)))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        self.shared.renew(tickets).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release> {
        self.shared.release(ticket).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>> {
        self.shared.inspect(name).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>> {
        self.shared.break_lock(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.shared.list(prefix).await
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool> {
        self.shared.note(ticket, text).await
    }

    fn forget(&self, holder: HolderId) {
        self.shared.abandon(holder);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
