//! A named lock with its options: what users acquire.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::client::acquire::{acquire, until};
use crate::client::guard::Guard;
use crate::client::hold::HoldOptions;
use crate::client::owner::{Claim, Entry, Owner};
use crate::client::queue::Key;
use crate::client::reentry::reenter;
use crate::client::shared::Shared;
use crate::client::try_acquire::try_acquire;
use crate::contract::{
    DistributedLock, Error, LockName, LockState, LossReason, Mode, Result, Work,
};
use crate::time::lease::Lease;

/// A lock by its name, with options; it holds nothing, and clones are cheap.
///
/// Without an owner acquires exclude each other: two tasks that share one `Lock` exclude each
/// other, and a task that acquires a lock it already holds waits for itself. Use
/// [`Guard::reenter`] or [`with_owner`](Self::with_owner) to enter again.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
/// use lockkit_core::{LockClient, memory::MemoryStore};
///
/// let client = LockClient::new(MemoryStore::new())?;
/// let lock = client.lock("orders/42")?;
/// let guard = lock.acquire().await?;
/// assert!(lock.try_acquire().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lock {
    shared: Arc<Shared>,
    name: LockName,
    /// The name that the store has for it.
    stored: LockName,
    mode: Mode,
    options: HoldOptions,
    /// The shortest hold time begins later, when all locks of a [`MultiLock`](crate::MultiLock) are held.
    keeps_later: bool,
    work: Option<Work>,
}

impl Lock {
    pub(crate) fn new(shared: &Arc<Shared>, name: LockName, mode: Mode) -> Result<Self> {
        shared.context.check_mode(mode)?;
        Ok(Self {
            shared: Arc::clone(shared),
            stored: shared.context.stored(&name)?,
            name,
            mode,
            options: shared.options,
            keeps_later: false,
            work: None,
        })
    }

    /// The lock's name.
    #[must_use]
    pub const fn name(&self) -> &LockName {
        &self.name
    }

    /// The lock's name as the store has it, with the client's prefix. For authors of stores.
    #[doc(hidden)]
    #[must_use]
    pub const fn stored_name(&self) -> &LockName {
        &self.stored
    }

    /// What kind of hold it acquires.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether one client made both.
    pub(crate) fn has_client_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Sets the lease of later acquires.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the store cannot honour it; the message says what it can.
    pub fn with_lease(mut self, lease: Lease) -> Result<Self> {
        self.shared.context.check_lease(lease)?;
        self.options.lease = lease;
        Ok(self)
    }

    /// Lets `owner` re-enter: a later acquire of the same owner, by this or another `Lock` of the
    /// same name, returns another guard of the same hold at once. Other callers wait.
    ///
    /// An owner has one hold of a name. One that holds the lock to write gets another guard of that hold when it reads. One
    /// that reads, or has a permit, cannot acquire the lock in a mode that lets fewer others hold.
    ///
    /// # Errors
    /// - [`Error::ForeignOwner`] if another client made the owner.
    pub fn with_owner(mut self, owner: &Owner) -> Result<Self> {
        if owner.client != self.shared.context.id {
            return Err(Error::ForeignOwner);
        }
        self.options.owner = Some(owner.id);
        Ok(self)
    }

    /// Limits how long a hold may be renewed; at the limit it is lost.
    ///
    /// # Errors
    /// - [`Error::InvalidOption`] if `limit` is zero.
    pub fn with_max_hold(mut self, limit: Duration) -> Result<Self> {
        self.options = self.options.with_max_hold(limit)?;
        Ok(self)
    }

    /// Keeps the lock for at least `least` from the moment at which the caller gets its guard, even if the last guard is
    /// dropped earlier. In a [`MultiLock`](crate::MultiLock), the time starts when all its locks are held.
    ///
    /// "Never two at once" is not "only once": a job that takes a second, started on two hosts whose
    /// clocks differ by two, runs twice. A hold that lasts longer than that keeps the second one away.
    ///
    /// The end of the last guard asks the store for a lease of the rest; the release follows in the
    /// background. The process may end when [`drain`](crate::LockClient::drain) returns. Where locks end
    /// with the session or the process, `drain` waits until the time has passed. A hold that is lost is
    /// not kept: after a crash, or where a fixed lease or a longest hold time ends sooner.
    pub const fn with_min_hold(mut self, least: Duration) -> Self {
        self.options.min_hold = Some(least);
        self
    }

    /// The shortest hold time of a new hold begins with [`Hold::keep_owed`](crate::client::hold::Hold::keep_owed).
    pub(crate) const fn keeping_later(mut self) -> Self {
        self.keeps_later = true;
        self
    }

    /// The store, with its decorators. For authors of stores.
    #[doc(hidden)]
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn DistributedLock> {
        &self.shared.context.store
    }

    /// The lock of a section, whose later grants do this work, if there is any, in the step that grants. For
    /// authors of stores.
    ///
    /// # Errors
    /// - [`Error::InvalidOption`] if the lock is not exclusive, or a hold is to last longer than its guards.
    /// - [`Error::Shutdown`] and [`Error::NoRuntime`] as in [`acquire`](Self::acquire).
    #[doc(hidden)]
    pub fn with_work(mut self, work: impl Into<Option<Work>>) -> Result<Self> {
        let why = if self.mode != Mode::Exclusive {
            "it has readers, writers or permits"
        } else if self.options.min_hold.is_some() {
            "it is to be held for a time: leave out `with_min_hold`"
        } else {
            self.check_open()?;
            self.work = work.into();
            return Ok(self);
        };
        let name = &self.name;
        Err(Error::invalid(format!(
            "lock `{name}` can have no section: {why}"
        )))
    }

    /// Waits for the lock, for as long as it takes.
    ///
    /// # Errors
    /// - [`Error::Backend`] if the store refused the request, or for the client's `outage` time could not be
    ///   reached or granted the lock too late to be trusted.
    /// - [`Error::InvalidOption`] if the owner of the lock has a hold that lets more others hold.
    /// - [`Error::Shutdown`] if the client is shut down.
    /// - [`Error::NoRuntime`] if it is polled outside a Tokio runtime; with a limit, also in one whose time is not
    ///   enabled.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves neither a hold nor a place in the queue behind; both
    /// are given up in the background. Keep polling it until then: other tasks of this client may wait
    /// for the response to its first request, and a lock that was granted is held.
    ///
    /// # Cost
    /// One round trip (on ZooKeeper two) when the lock is free, none when the owner holds it.
    pub async fn acquire(&self) -> Result<Guard> {
        self.acquire_by(Instant::now(), None).await
    }

    /// Waits for the lock, but not longer than `limit`.
    ///
    /// When the time is up, the store is asked once more for the lock, and then who holds it. Each takes a
    /// round trip, or at most one request timeout of a store that does not respond.
    ///
    /// # Errors
    /// - [`Error::Timeout`] if others held it all the time and still do.
    /// - [`Error::Backend`] if the store refused the request, or was failing when the time was up.
    /// - [`Error::Shutdown`] and [`Error::NoRuntime`] as in [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cost
    /// As [`acquire`](Self::acquire). A call that gives up while the store does not respond leaves a task, which
    /// repeats the release of its ticket until the store responds or the lease has ended. Where a session
    /// ends holds, only the response ends these tasks: there are as many as such calls in an outage.
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<Guard> {
        let began = Instant::now();
        self.acquire_by(began, began.checked_add(limit)).await
    }

    /// Waits for the lock until the deadline of a call that began then. A wait in vain says who held it.
    pub(crate) async fn acquire_by(
        &self,
        began: Instant,
        deadline: Option<Instant>,
    ) -> Result<Guard> {
        let mut outcome = self.wait_for(began, deadline).await;
        if let Err(Error::Timeout { state, .. }) = &mut outcome {
            let now = self.inspect().await.ok().flatten();
            *state = now.filter(|now| !now.holders.is_empty()).map(Arc::new);
        }
        outcome
    }

    async fn wait_for(&self, began: Instant, deadline: Option<Instant>) -> Result<Guard> {
        let timeout = || Error::Timeout {
            name: self.name.clone(),
            waited: began.elapsed(),
            state: None,
        };
        if deadline.is_some() {
            self.needs_time()?;
        }
        let claim = loop {
            self.enter().await?;
            match self.reenter()? {
                Entry::Holds(guard) => return Ok(guard),
                Entry::Free(claim) => break claim,
                Entry::Busy(done) => tokio::select! {
                    () = done => {}
                    () = until(deadline) => return Err(timeout()),
                },
            }
        };
        loop {
            let guard = acquire(&self.shared, self.key(), self.options, began, deadline).await?;
            // A process that was stopped while it waited may find its grant expired.
            if let Err(Error::Lost { reason, .. }) = guard.check()
                && reason != LossReason::MaxHold
            {
                self.enter().await?;
                continue;
            }
            return Ok(self.handed_out(claim, guard));
        }
    }

    /// Takes the lock if it is free; `None` if it is held or waited for.
    ///
    /// While a task of the same client holds the lock or waits for it, it returns `None` without
    /// a round trip.
    ///
    /// # Errors
    /// - [`Error::Backend`] if the store refused the request, or did not respond within the client's
    ///   request timeout.
    /// - [`Error::Shutdown`] and [`Error::NoRuntime`] as in [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cost
    /// One round trip (on ZooKeeper two, and four when the lock is free). While the store does not respond, as
    /// [`acquire_timeout`](Self::acquire_timeout).
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.try_by(None).await
    }

    /// The same, for a call with a deadline.
    pub(crate) async fn try_by(&self, deadline: Option<Instant>) -> Result<Option<Guard>> {
        self.enter().await?;
        let claim = match self.reenter()? {
            Entry::Holds(guard) => return Ok(Some(guard)),
            Entry::Busy(_) => return Ok(None),
            Entry::Free(claim) => claim,
        };
        if self.mode.is_exclusive() && self.shared.queues.is_busy(&self.stored) {
            return Ok(None);
        }
        let guard = try_acquire(&self.shared, &self.key(), self.options, None, deadline).await?;
        Ok(guard.map(|guard| self.handed_out(claim, guard)))
    }

    /// Inspects the lock; `None` if it is neither held nor waited for.
    ///
    /// # Errors
    /// - [`Error::Backend`] if the store failed.
    /// - [`Error::NoRuntime`] if it is polled outside a Tokio runtime, [`Error::Shutdown`] if the client's has stopped.
    pub async fn inspect(&self) -> Result<Option<LockState>> {
        let name = self.stored.clone();
        let context = &self.shared.context;
        let state = context.request("inspect", |store| async move { store.inspect(&name).await });
        Ok(state.await?.map(|state| self.shown(state)))
    }

    /// Ends the hold of any client, and returns what was there. For operators.
    ///
    /// The holder learns of it with its next renewal, or at once where the store reports losses; until then its writes
    /// are stopped by the token alone. A fixed lease has no renewals: elsewhere its holder trusts it to its end.
    ///
    /// # Errors
    /// - [`Error::Backend`] if the store failed.
    /// - [`Error::NoRuntime`] and [`Error::Shutdown`] as in [`inspect`](Self::inspect).
    pub async fn break_lock(&self) -> Result<Option<LockState>> {
        let name = self.stored.clone();
        let context = &self.shared.context;
        let state = context.request("break_lock", |store| async move {
            store.break_lock(&name).await
        });
        Ok(state.await?.map(|state| self.shown(state)))
    }

    /// The state under the name that the caller has for the lock.
    fn shown(&self, mut state: LockState) -> LockState {
        state.name = self.name.clone();
        state
    }

    /// What every acquire does first.
    async fn enter(&self) -> Result<()> {
        // A store that is always ready would otherwise let one task starve the others of its thread.
        tokio::task::consume_budget().await;
        self.check_open()
    }

    fn check_open(&self) -> Result<()> {
        if Handle::try_current().is_err() {
            return Err(Error::NoRuntime);
        }
        match self.shared.is_closing() {
            true => Err(Error::Shutdown),
            false => Ok(()),
        }
    }

    /// Fails where there is no timer.
    pub(crate) fn needs_time(&self) -> Result<()> {
        match self.shared.context.runtime.has_time_here() {
            true => Ok(()),
            false => Err(Error::NoRuntime),
        }
    }

    fn reenter(&self) -> Result<Entry<Guard>> {
        match reenter(&self.shared, &self.stored, self.options.owner) {
            Entry::Holds(guard) => self.covered(guard).map(Entry::Holds),
            other => Ok(other),
        }
    }

    /// The guard of a hold that its owner has, if that is enough.
    fn covered(&self, guard: Guard) -> Result<Guard> {
        if guard.ticket().mode.covers(self.mode) {
            return Ok(guard);
        }
        let name = &self.name;
        Err(Error::invalid(format!(
            "the owner already shares lock `{name}`, and has one hold of a name: release that one first"
        )))
    }

    /// The guard of a new hold, on its way to the caller.
    fn handed_out(&self, claim: Option<Claim>, guard: Guard) -> Guard {
        let hold = &guard.held().hold;
        if !self.keeps_later {
            hold.keep_owed();
        }
        if let Some(claim) = claim {
            claim.held(hold);
        }
        guard
    }

    fn key(&self) -> Key {
        let (ttl, work) = (self.options.lease.ttl(), self.work.clone());
        Key::new(self.stored.clone(), self.mode, ttl, work)
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .field("lease", &self.options.lease)
            .finish_non_exhaustive()
    }
}
