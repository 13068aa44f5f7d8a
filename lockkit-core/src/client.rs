//! The client of one store: it owns the keeper, the reaper and the tables of what is held.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::{DistributedLock, LockState, Ticket};
use crate::capability::{Capabilities, TtlOf};
use crate::clock::{BootClock, Clock};
use crate::error::{BackendError, Error, LossReason, Result};
use crate::hold::Hold;
use crate::holder::{ClientId, HolderId};
use crate::keeper::Keeper;
use crate::lease::Lease;
use crate::lock::Lock;
use crate::mutants::{Broken, Mutant};
use crate::name::LockName;
use crate::owner::{Owner, Owners};
use crate::reaper::{Job, Reaper, Reaping};
use crate::runtime::Runtime;
use crate::sync::lock;
use crate::table::{Key, Table};

/// The client of one store. Cheap to clone; all clones share one keeper and one reaper.
///
/// Made inside a Tokio runtime, whose tasks renew and release; it may be used from other runtimes
/// too. When that runtime stops, every hold is lost at once.
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
    core: Arc<Core>,
}

impl LockClient {
    /// Makes a client with the default options of [`LockClientBuilder`].
    ///
    /// # Errors
    /// - [`Error::NoRuntime`] if it is called outside a Tokio runtime.
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

    /// The lock called `name`. Nothing is sent.
    ///
    /// # Errors
    /// - [`Error::InvalidName`] if the text cannot name a lock.
    pub fn lock(&self, name: impl Into<Arc<str>>) -> Result<Lock> {
        let name = LockName::new(name)?;
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
    /// - [`Error::Backend`] if the store did not answer.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.core
            .request("list", self.core.store.list(prefix))
            .await
    }

    /// Waits until everything that was dropped is released at the store.
    ///
    /// It takes as long as the store takes to answer, at most until the leases have ended.
    pub async fn drain(&self) {
        self.core.reaper.idle().await;
    }

    /// Closes the client: refuses new acquires and fails those that wait; after `grace` ends what is
    /// still held, with [`LossReason::Shutdown`]; releases everything and stops its tasks.
    ///
    /// # Errors
    /// - [`Error::Backend`] if releases were not answered within one request timeout. Their leases
    ///   end them.
    ///
    /// # Cancel safety
    /// The client stays closed; call it again to finish.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        let core = &self.core;
        core.closing.store(true, Ordering::Release);
        core.table.wake_all();
        let end = Instant::now() + grace;
        while core.table.holds() > 0 && Instant::now() < end {
            sleep(Duration::from_millis(20).min(end.saturating_duration_since(Instant::now())))
                .await;
        }
        core.keeper.stop(LossReason::Shutdown);
        timeout(core.timeout, core.reaper.idle())
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

/// Options of a [`LockClient`].
#[derive(Debug)]
#[must_use]
pub struct LockClientBuilder {
    store: Arc<dyn DistributedLock>,
    lease: Option<Lease>,
    max_hold: Option<Duration>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
    outage: Duration,
    runtime: Option<Handle>,
    seed: Option<u64>,
    broken: Broken,
}

impl LockClientBuilder {
    fn new(store: Arc<dyn DistributedLock>) -> Self {
        Self {
            store,
            lease: None,
            max_hold: None,
            clock: Arc::new(BootClock),
            timeout: Duration::from_secs(2),
            outage: Duration::from_secs(30),
            runtime: None,
            seed: None,
            broken: Broken::default(),
        }
    }

    /// The lease of locks that set none. By default renewed, 30 seconds, or the nearest that the
    /// store can do.
    pub const fn lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    /// The longest hold time of locks that set none. By default there is none.
    pub const fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// The clock of deadlines. By default [`BootClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The longest that one request to the store may take. By default 2 seconds.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// After how long a failing store is given up by an acquire without a limit. By default 30 seconds.
    pub const fn outage(mut self, outage: Duration) -> Self {
        self.outage = outage;
        self
    }

    /// The runtime for the client's tasks. By default the one that [`build`](Self::build) is called in.
    pub fn runtime(mut self, handle: Handle) -> Self {
        self.runtime = Some(handle);
        self
    }

    /// Makes all random pauses follow from `seed`, for tests that must repeat.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Breaks a promise, to test the conformance suite.
    #[cfg(feature = "mutants")]
    pub const fn mutant(mut self, mutant: Mutant) -> Self {
        self.broken.promise = Some(mutant);
        self
    }

    /// Makes the client and starts its tasks.
    ///
    /// # Errors
    /// - [`Error::NoRuntime`] if there is no runtime.
    /// - [`Error::Unsupported`] if the store cannot honour the lease.
    pub fn build(self) -> Result<LockClient> {
        let handle = match self.runtime {
            Some(handle) => handle,
            None => Handle::try_current().map_err(|_| Error::NoRuntime)?,
        };
        let capabilities = self.store.capabilities();
        let (reaper, jobs) = Reaper::new();
        let core = Arc::new(Core {
            id: ClientId::random(),
            lease: self
                .lease
                .unwrap_or_else(|| nearest(Lease::default(), &capabilities)),
            max_hold: self.max_hold.filter(|limit| !limit.is_zero()),
            timeout: self.timeout,
            outage: self.outage,
            clock: self.clock,
            runtime: Runtime::new(handle),
            keeper: Arc::new(Keeper::new()),
            reaper,
            table: Table::default(),
            owners: Arc::default(),
            random: Mutex::new(
                self.seed
                    .map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed),
            ),
            ids: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            broken: self.broken,
            store: self.store,
            capabilities,
        });
        core.can_lease(core.lease)?;
        let reaping = Reaping {
            store: Arc::clone(&core.store),
            clock: Arc::clone(&core.clock),
            capabilities,
            timeout: core.timeout,
        };
        drop(core.runtime.spawn(reaping.run(jobs)));
        drop(
            core.runtime
                .spawn(Arc::clone(&core.keeper).run(Arc::clone(&core.clock))),
        );
        Ok(LockClient { core })
    }
}

/// A renewed lease that the store can do.
fn nearest(lease: Lease, capabilities: &Capabilities) -> Lease {
    Lease::renewed(
        lease
            .ttl()
            .clamp(capabilities.min_ttl, capabilities.max_ttl),
    )
}

/// What all handles and guards of a client share.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn DistributedLock>,
    pub(crate) capabilities: Capabilities,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Runtime,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) reaper: Reaper,
    pub(crate) table: Table,
    pub(crate) owners: Arc<Owners>,
    pub(crate) id: ClientId,
    pub(crate) timeout: Duration,
    pub(crate) outage: Duration,
    pub(crate) broken: Broken,
    lease: Lease,
    max_hold: Option<Duration>,
    random: Mutex<fastrand::Rng>,
    ids: AtomicU64,
    closing: AtomicBool,
}

impl Core {
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A new ticket, with an identity that was never used. INV-3.
    pub(crate) fn ticket(&self, key: &Key, enqueue: bool) -> Ticket {
        let number = if self.broken.is(Mutant::HolderReused) {
            1
        } else {
            self.next_id()
        };
        Ticket {
            name: key.name.clone(),
            holder: HolderId::new(self.id, number),
            mode: key.mode,
            ttl: key.ttl,
            enqueue,
        }
    }

    /// Releases a ticket in the background.
    pub(crate) fn release_later(&self, ticket: Ticket) {
        let outstanding = self.reaper.outstanding();
        self.reaper.submit(Job::Release {
            ticket,
            before: None,
            outstanding,
        });
    }

    /// What a guard must never do when it is dropped; the suite's mutant does it.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the mistake that the suite must catch"
    )]
    pub(crate) fn release_by_spawning(&self, ticket: &Ticket) {
        let (store, ticket) = (Arc::clone(&self.store), ticket.clone());
        drop(tokio::spawn(async move { store.release(&ticket).await }));
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// A random number in `-1.0..=1.0`.
    pub(crate) fn jitter(&self) -> f64 {
        lock(&self.random).f64().mul_add(2.0, -1.0)
    }

    /// Bounds a request that no other policy bounds.
    pub(crate) async fn request<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T> {
        if Handle::try_current().is_err() {
            return Err(Error::NoRuntime);
        }
        match timeout(self.timeout, request).await {
            Ok(answer) => Ok(answer?),
            Err(_) => {
                Err(BackendError::timeout(self.store.backend(), operation, self.timeout).into())
            }
        }
    }

    /// Checks a lease against what the store can do.
    pub(crate) fn can_lease(&self, lease: Lease) -> Result<()> {
        let Capabilities {
            min_ttl: min,
            max_ttl: max,
            ttl_step: step,
            ttl_of,
            ..
        } = self.capabilities;
        let ttl = lease.ttl();
        // Where the session's lease counts, the client alone ends a fixed lease, at any later time.
        let bounded = ttl_of == TtlOf::PerHold || matches!(lease, Lease::Renewed { .. });
        let what = if ttl < min || (bounded && ttl > max) {
            format!(
                "a lease of {ttl:?}: the {} store does {min:?} to {max:?}",
                self.store.backend()
            )
        } else if !step.is_zero() && bounded && !ttl.as_nanos().is_multiple_of(step.as_nanos()) {
            format!(
                "a lease of {ttl:?}: the {} store does multiples of {step:?}",
                self.store.backend()
            )
        } else {
            return Ok(());
        };
        Err(Error::Unsupported { what })
    }

    /// Leaves a trace of a loss.
    #[cfg(feature = "tracing")]
    pub(crate) fn note_loss(&self, hold: &Hold, reason: LossReason) {
        if !hold.is_abandoned() {
            tracing::warn!(lock = %hold.ticket.name, token = %hold.token, %reason, "lock lost");
        }
    }

    #[cfg(not(feature = "tracing"))]
    #[expect(clippy::unused_self, reason = "the feature `tracing` reports it")]
    pub(crate) const fn note_loss(&self, _: &Hold, _: LossReason) {}
}

impl Drop for Core {
    fn drop(&mut self) {
        self.keeper.stop(LossReason::Shutdown);
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.id)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
