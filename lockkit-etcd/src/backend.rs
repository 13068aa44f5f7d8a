//! The store in etcd: one transaction of the server for each call of the contract.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::contract::{
    Attempt, DistributedLock, LockState, Release, Renewal, Ticket, Watch,
};
use lockkit_core::store::lock;
use lockkit_core::{Capabilities, FencingToken, HolderId, LockName, Outcome};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::config::EtcdStoreBuilder;
use crate::error::{BACKEND, Result, fault};
use crate::shared::Shared;

/// Keeps locks in an etcd cluster.
///
/// A clone is the same store, with the same session.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_etcd::EtcdStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = EtcdStore::builder().endpoint("127.0.0.1", 2379).connect().await?;
/// let client = LockClient::new(store)?;
/// let guard = client.lock("orders/42")?.acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EtcdStore {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    watcher: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The tasks keep the rest.
        self.watcher.abort();
        self.shared.close();
    }
}

/// What an [`EtcdStore`] keeps in memory at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Tickets that hold, wait, or may still do so.
    pub tickets: usize,
    /// Keys that are watched. A watch ends within a second or two after the last ticket that needs it.
    pub watches: usize,
}

impl EtcdStoreBuilder {
    /// Connects to the first server that responds.
    ///
    /// # Errors
    /// - [`BackendError`](lockkit_core::BackendError) if no server can be reached, or this user or the
    ///   `token_base` is refused.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is left behind.
    pub async fn connect(self) -> Result<EtcdStore> {
        let runtime = Handle::try_current()
            .map_err(|error| fault("connect", Outcome::Rejected, error.to_string()))?;
        FencingToken::check_base(self.token_base)
            .map_err(|why| fault("connect", Outcome::Rejected, why))?;
        let shared = Arc::new(Shared::new(self, runtime));
        let watcher = shared.runtime.spawn(Arc::clone(&shared).read_events());
        let store = EtcdStore {
            inner: Arc::new(Inner {
                shared,
                watcher: watcher.abort_handle(),
            }),
        };
        store.shared().greet().await?;
        Ok(store)
    }
}

impl EtcdStore {
    /// The options of a store.
    pub fn builder() -> EtcdStoreBuilder {
        EtcdStoreBuilder::new()
    }

    /// Counts what the store keeps now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            tickets: self.shared().tickets.len(),
            watches: lock(&self.shared().watches).len(),
        }
    }

    /// The leases of the store at the server, for operators and tests. The end of one ends all its holds.
    #[must_use]
    pub fn leases(&self) -> Vec<i64> {
        let sessions = lock(&self.shared().sessions);
        sessions.values().map(|session| session.lease.id).collect()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.inner.shared
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("layout", &self.shared().layout)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for EtcdStore {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn address(&self) -> Option<String> {
        Some(self.shared().link.addresses())
    }

    fn capabilities(&self) -> Capabilities {
        self.shared().capabilities
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt> {
        self.shared().attempt(ticket).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>> {
        let watch = self.shared().watch(ticket).ok_or_else(|| {
            let why = "the ticket was not attempted, or was released";
            fault("watch", Outcome::Rejected, why)
        })?;
        Ok(Box::new(watch))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        self.shared().renew(tickets).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release> {
        self.shared().release(ticket).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>> {
        self.shared().inspect(name).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>> {
        self.shared().break_lock(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.shared().list(prefix).await
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool> {
        self.shared().note(ticket, text).await
    }

    fn forget(&self, holder: HolderId) {
        self.shared().forget(holder, false);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
