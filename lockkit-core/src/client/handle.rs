//! The client of one store: it owns the keeper, the reaper and the tables of what is held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::client::builder::LockClientBuilder;
use crate::client::lock::Lock;
use crate::client::owner::Owner;
use crate::client::shared::Core;
use crate::contract::error::{BackendError, LossReason, Result};
use crate::contract::holder::ClientId;
use crate::contract::name::LockName;
use crate::contract::{DistributedLock, LockState};

/// The client of one store. Cheap to clone; all clones share one keeper and one reaper.
///
/// Made inside a Tokio runtime, which carries out all requests to the store. It may be used from other
/// runtimes too, which may end or stand still at any moment. When its own runtime stops, every hold is
/// lost at once.
///
/// A client belongs to one process: after a `fork` or when a snapshot of a process is started twice,
/// make a new one in each. Two copies would have one identity, and the store would take them for one.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
/// use lockkit_core::{LockClient, memory::MemoryStore};
///
/// let client = LockClient::new(MemoryStore::new())?;
/// let guard = client.lock("nightly")?.acquire().await?;
/// println!("write with token {}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockClient {
    pub(crate) core: Arc<Core>,
}

impl LockClient {
    /// Makes a client with the default options of [`LockClientBuilder`].
    ///
    /// # Errors
    /// - [`Error::NoRuntime`](crate::Error::NoRuntime) if it is called outside a Tokio runtime.
    pub fn new(store: impl DistributedLock) -> Result<Self> {
        Self::builder(store).build()
    }

    /// Sets options before making a client.
    pub fn builder(store: impl DistributedLock) -> LockClientBuilder {
        Self::builder_arc(Arc::new(store))
    }

    /// As [`builder`](Self::builder), for a store that is shared already.
    pub fn builder_arc(store: Arc<dyn DistributedLock>) -> LockClientBuilder {
        LockClientBuilder::new(store)
    }

    /// The lock called `name`: a text, or a [`LockName`]. Nothing is sent.
    ///
    /// # Errors
    /// - [`Error::InvalidName`](crate::Error::InvalidName) if the text cannot name a lock.
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Lock> {
        let name = LockName::new(name.as_ref())?;
        Ok(Lock::new(
            Arc::clone(&self.core),
            name,
            self.core.lease,
            self.core.max_hold,
        ))
    }

    /// Makes an owner, who can re-enter what it holds.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner {
            client: self.core.id,
            id: self.core.next_id(),
        }
    }

    /// The identity of this client in the store.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.core.id
    }

    /// The store, with its decorators.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn DistributedLock> {
        &self.core.store
    }

    /// The innermost store, if it is an `S`: the way to what only that store can do.
    #[must_use]
    pub fn store<S: DistributedLock>(&self) -> Option<&S> {
        self.core.store.as_any().downcast_ref()
    }

    /// Lists the locks whose names begin with `prefix` and that somebody holds or waits for.
    ///
    /// # Errors
    /// - [`Error::Backend`](crate::Error::Backend) if the store did not answer.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let prefix = prefix.to_owned();
        self.core
            .request("list", |store| async move { store.list(&prefix).await })
            .await
    }

    /// Waits until everything that was dropped is released at the store.
    ///
    /// It takes as long as the store takes to answer, at most until the leases have ended. A hold with
    /// a [shortest hold time](crate::Lock::with_min_hold) is finished when its lease lasts until then;
    /// where the lock ends with its session or its process, when that time has passed.
    pub async fn drain(&self) {
        self.core.reaper.idle().await;
    }

    /// Closes the client: refuses new acquires and fails those that wait; after `grace` ends what is
    /// still held, with [`LossReason::Shutdown`]; releases everything and stops its tasks. The grace is
    /// for what [`drain`](Self::drain) waits for, too, but not for holds that were leaked.
    ///
    /// # Errors
    /// - [`Error::Backend`](crate::Error::Backend) if releases were not answered within one request timeout. Their leases
    ///   end them.
    ///
    /// # Cancel safety
    /// The client stays closed; call it again to finish.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        let core = &self.core;
        core.close();
        // What is still held after the grace is lost now.
        let finished = async {
            core.table.nothing_held().await;
            core.reaper.idle().await;
        };
        let _ = timeout(grace, finished).await;
        core.keeper.stop(LossReason::Shutdown);
        timeout(core.timeout, core.reaper.settled())
            .await
            .map_err(|_| {
                BackendError::timeout(core.store.backend(), "release", core.timeout).into()
            })
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}
