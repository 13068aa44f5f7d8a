//! The store in memory: the executable specification of the [contract](crate::contract), and a
//! stand-in for a real store in tests.
//!
//! | file | what it knows |
//! |---|---|
//! | `mod.rs`, `builder.rs` | the store as the client sees it |
//! | `state.rs` | the steps of the contract, on all locks |
//! | `entry.rs` | the rules of one lock: who holds, who is next, what ends |
//! | `queue.rs` | its waiters, their places and heartbeats |
//! | `globals.rs` | tokens, sessions, and wake-ups by [`waiters`](crate::store::waiters) |
//!
//! # Semantics
//! - Waiters stand in a queue, in the order of their first attempts. In one step, a release makes the first
//!   living one the holder, and those behind it that [fit](crate::contract::Mode::fits) beside it. It pushes
//!   them their grants, at first with the short lease [`queue_window`](crate::queue_window); the first renewal
//!   or repeated attempt makes it whole.
//! - A place lasts for [`queue_window`](crate::queue_window) without a heartbeat.
//! - There is no timer. A lease that ended is noticed by the next step on the lock, at the latest
//!   by the heartbeat of the first waiter.
//! - The token is a counter of the store, shared by all names: it never goes back, nothing is kept
//!   for a name that is not in use, and a wipe leaves it. It lives as long as the process, so do not
//!   compare it with tokens of an earlier one.
//! - A released ticket leaves a tombstone, so that its late attempt is refused. They are kept as
//!   ranges of numbers, 65 536 for each of the 1024 clients that released last.

mod builder;
mod entry;
mod globals;
mod queue;
mod state;

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;

use self::entry::Entry;
use self::globals::{Globals, Session};
use self::state::State;
use crate::contract::{
    Attempt, BackendError, Capabilities, DistributedLock, HolderId, LockName, LockState, Outcome,
    Release, Renewal, Ticket, Waiting, Watch,
};
use crate::store::sync::lock;
use crate::time::clock::Clock;

pub use self::builder::MemoryStoreBuilder;
pub use self::state::Counts;

const BACKEND: &str = "memory";
/// How many renewals are carried out before other requests get their turn.
const BATCH: usize = 500;

/// Keeps locks in the memory of this process.
///
/// A clone is the same handle, with the same session; [`connect`](Self::connect) makes another
/// handle on the same locks, as another client of a real store would have it.
///
/// # Cost
/// An attempt of a free lock allocates its future and a list of holders, a release its future.
///
/// # Examples
/// ```
/// use lockkit_core::contract::{Attempt, DistributedLock, Ticket};
/// use lockkit_core::memory::MemoryStore;
/// use lockkit_core::{ClientId, HolderId, LockName};
/// use std::time::Duration;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let holder = HolderId::new(ClientId::random(), 1);
/// let ticket = Ticket::new(LockName::new("orders/42")?, holder, Duration::from_secs(30));
/// assert!(matches!(store.attempt(&ticket).await?, Attempt::Granted(_)));
/// store.release(&ticket).await?;
/// assert!(store.is_empty());
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(example())
/// #     .map_err(|error| std::io::Error::other(error.to_string()))?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    session: Session,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    rules: Capabilities,
    state: Mutex<State>,
    sessions: AtomicU64,
}

impl MemoryStore {
    /// A store of leases with a fair queue that pushes wake-ups.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Another handle on the same locks, with a session of its own.
    #[must_use]
    pub fn connect(&self) -> Self {
        Self::over(Arc::clone(&self.shared))
    }

    fn over(shared: Arc<Shared>) -> Self {
        let session = shared.sessions.fetch_add(1, Ordering::Relaxed);
        Self { shared, session }
    }

    /// Ends all holds and places that came through this handle, as if its session had run out.
    ///
    /// A store of sessions sends their watches [`Lost`](crate::contract::Wake::Lost); a store of
    /// leases sends nothing, as if all of them had run out at once. The handle's next attempt begins
    /// a new session.
    pub fn expire_session(&self) {
        self.step().end_session(self.session);
    }

    /// Drops all wake-ups of the store from now on, of every handle, or delivers them again.
    pub fn lose_pushes(&self, lose: bool) {
        lock(&self.shared.state).globals.loses_wakes = lose;
    }

    /// Deletes every hold, every place and every tombstone, as an operator might do it. Tokens still
    /// grow.
    pub fn wipe(&self) {
        lock(&self.shared.state).wipe();
    }

    /// Counts what is kept now, without what has ended.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.step().counts()
    }

    /// Whether no ticket holds, waits or watches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.counts() == Counts::default()
    }

    /// Begins a step: the clock is read inside, so that the state never sees time go back.
    fn step(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.shared.state);
        state.begin(self.shared.clock.now());
        state
    }

    fn on<T>(&self, name: &LockName, step: impl FnOnce(&mut Entry, &mut Globals) -> T) -> T {
        self.step().on(name, step)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for MemoryStore {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn capabilities(&self) -> Capabilities {
        self.shared.rules
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let answer = self.on(&ticket.name, |entry, globals| {
            globals.keep_alive(self.session);
            entry.attempt(ticket, self.session, globals)
        });
        answer.map_err(|_| BackendError::released(BACKEND, "attempt"))
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        if self.shared.rules.waiting == Waiting::Poll && !self.shared.rules.tells_loss {
            let why = "this store was built without wake-ups";
            return Err(BackendError::new(BACKEND, "watch", Outcome::Rejected, why));
        }
        Ok(Box::new(self.on(&ticket.name, |entry, globals| {
            entry.watch(ticket, self.session, globals)
        })))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let mut answers = Vec::with_capacity(tickets.len());
        for batch in tickets.chunks(BATCH) {
            let mut state = self.step();
            state.globals.keep_alive(self.session);
            let renew = |ticket: &Ticket| {
                Ok(state.on(&ticket.name, |entry, globals| entry.renew(ticket, globals)))
            };
            answers.extend(batch.iter().map(renew));
        }
        answers
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        Ok(self.on(&ticket.name, |entry, globals| {
            entry.release(ticket.holder, globals)
        }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        Ok(self.on(name, |entry, globals| {
            entry.settle(globals);
            (!entry.is_blank()).then(|| entry.describe(name, globals))
        }))
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        Ok(self.on(name, |entry, globals| entry.break_lock(name, globals)))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        Ok(self.step().list(prefix))
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool, BackendError> {
        Ok(self.on(&ticket.name, |entry, globals| {
            entry.note(ticket, text, globals)
        }))
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let answer = self.on(&ticket.name, |entry, globals| {
            globals.keep_alive(self.session);
            entry.adopt(from, ticket, self.session, globals)
        });
        answer.map_err(|_| BackendError::released(BACKEND, "adopt"))
    }

    fn forget(&self, holder: HolderId) {
        self.step().forget(holder);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
