//! How a memory store is made.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::state::State;
use super::{MemoryStore, Shared};
use crate::contract::{Capabilities, EndsBy, PollRange, Queueing, TtlOf, Waiting};
use crate::time::clock::{BootClock, Clock};

/// A session is the heartbeat of all its places: their waiters poll rarely.
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
            rules: Capabilities {
                queueing: Queueing::Fifo,
                waiting: Waiting::Push,
                shares: true,
                notes: true,
                adopts: true,
                ..Capabilities::new()
            },
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
        self.rules.queueing = queueing;
        self
    }

    /// Sets how waiters learn of a free lock: [`Waiting::Push`] if not set.
    pub fn waiting(mut self, waiting: Waiting) -> Self {
        self.rules.waiting = waiting;
        self
    }

    /// Sets the pauses of waiters that poll.
    pub fn poll(mut self, poll: PollRange) -> Self {
        self.rules.poll = poll;
        self
    }

    /// Sets the longest time between two attempts of a waiter: three seconds if not set, or fifteen with
    /// [`sessions`](Self::sessions).
    pub fn recheck(mut self, recheck: Duration) -> Self {
        self.rules.recheck = recheck;
        self
    }

    /// Makes a store of sessions instead of leases: all that comes through one handle belongs to one
    /// session, which ends `ttl` after the handle's last attempt or renewal. Such a store reports
    /// losses, and cannot hand over: a hold ends with the session that it came through.
    pub fn sessions(mut self, ttl: Duration) -> Self {
        self.rules = Capabilities {
            min_ttl: ttl,
            max_ttl: ttl,
            ttl_of: TtlOf::PerSession,
            ends_by: EndsBy::Session,
            recheck: SESSION_RECHECK,
            adopts: false,
            tells_loss: true,
            ..self.rules
        };
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
