//! How a memory store is made.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::state::State;
use super::{MemoryStore, Shared};
use crate::contract::{Capabilities, EndsBy, Modes, PollRange, Queueing, TtlOf, Waiting};
use crate::time::clock::{BootClock, Clock};

/// A session is the heartbeat of all its places: their waiters look rarely.
const SESSION_RECHECK: Duration = Duration::from_secs(15);

/// Makes a [`MemoryStore`] that behaves like the kind of store a test wants.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use lockkit_core::memory::MemoryStore;
///
/// // As etcd or ZooKeeper: all holds of a client share the lease of its session.
/// let store = MemoryStore::builder().sessions(Duration::from_secs(10)).build();
/// # let _ = store;
/// ```
#[derive(Debug)]
#[must_use = "a builder makes a store when `build` is called"]
pub struct MemoryStoreBuilder {
    clock: Arc<dyn Clock>,
    rules: Capabilities,
}

impl MemoryStore {
    /// A store of another kind.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            clock: Arc::new(BootClock),
            rules: Capabilities::new()
                .with_queueing(Queueing::Fifo)
                .with_waiting(Waiting::Push)
                .with_modes(Modes::ALL)
                .with_notes(true)
                .with_adopts(true),
        }
    }
}

impl MemoryStoreBuilder {
    /// Sets the clock of all leases. Give the clients the same one, as on one machine. The machine's
    /// time since boot if not set.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the order of waiters: [`Queueing::Fifo`] if not set.
    pub fn queueing(mut self, queueing: Queueing) -> Self {
        self.rules = self.rules.with_queueing(queueing);
        self
    }

    /// Sets how waiters learn of a free lock: [`Waiting::Push`] if not set.
    pub fn waiting(mut self, waiting: Waiting) -> Self {
        self.rules = self.rules.with_waiting(waiting);
        self
    }

    /// Sets the pauses of waiters that poll.
    pub fn poll(mut self, poll: PollRange) -> Self {
        self.rules = self.rules.with_poll(poll);
        self
    }

    /// Sets the longest time between two attempts of a waiter: three seconds if not set, or fifteen with
    /// [`sessions`](Self::sessions).
    pub fn recheck(mut self, recheck: Duration) -> Self {
        self.rules = self.rules.with_recheck(recheck);
        self
    }

    /// Sets the shortest and the longest lease of a hold: 100 ms and a day if not set.
    pub fn ttl_range(mut self, min: Duration, max: Duration) -> Self {
        self.rules = self.rules.with_ttl_range(min, max);
        self
    }

    /// Makes a store of sessions instead of leases: all that comes through one handle belongs to one
    /// session, which ends `ttl` after the handle's last attempt or renewal. Such a store reports
    /// losses, and cannot hand over: a hold ends with the session that it came through.
    pub fn sessions(mut self, ttl: Duration) -> Self {
        self.rules = self
            .rules
            .with_ttl_range(ttl, ttl)
            .with_ttl_of(TtlOf::PerSession)
            .with_ends_by(EndsBy::Session)
            .with_recheck(SESSION_RECHECK)
            .with_adopts(false)
            .with_tells_loss(true);
        self
    }

    /// Makes the store, empty.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        MemoryStore::over(Arc::new(Shared {
            clock: self.clock,
            rules: self.rules,
            state: Mutex::new(State::new(self.rules)),
            sessions: 0.into(),
        }))
    }
}
