//! The trait that a store implements, and its wake-ups.

use std::any::Any;
use std::fmt::Debug;

use async_trait::async_trait;

use super::capability::Capabilities;
use super::error::{BackendError, LossReason, Outcome};
use super::holder::HolderId;
use super::name::LockName;
use super::state::LockState;
use super::ticket::{Attempt, Grant, Release, Renewal, Ticket};

/// A service that grants named, fenced leases. This is what a store implements.
///
/// Despite its name it is a whole store and not one lock: what a user locks is a
/// [`Lock`](crate::Lock), made by a [`LockClient`](crate::LockClient) over one of these. A program that
/// only uses locks does not need this trait.
///
/// # Behavior
/// - Every step is idempotent by ticket: the client repeats any of them after a lost reply.
/// - Every future may be dropped at any await; the request may then still be carried out.
/// - Attempts, adoptions and releases of one ticket never overlap. A renewal, a note, or a watch that is being opened
///   may be under way beside any of them.
/// - The client calls `release` for every attempted ticket, until it returns `Ok`, or else `forget`: when the
///   lease must have ended before a release returned `Ok`, or when its runtime has stopped. It never uses the ticket afterwards. It leaves that out
///   where every result was [`Rejected`](crate::Outcome::Rejected) or [`Unavailable`](crate::Outcome::Unavailable)
///   or, for a ticket that does not enqueue,
///   [`Attempt::Held`]: after those the store must not keep any state of the ticket.
/// - A request of a released ticket that the server carries out late must not become a hold that
///   something keeps alive.
/// - Errors carry no secrets, and an [`Outcome`](crate::Outcome) that is true.
#[async_trait]
pub trait DistributedLock: Debug + Send + Sync + 'static {
    /// The store's name for messages, metrics and reports: `redis`, `file`, `memory`.
    fn backend(&self) -> &'static str;

    /// Where the server is, for messages: `10.0.0.7:6379`, or all addresses of a store of several servers.
    /// Never with a user or a password. INV-14. `None` for a store without a server.
    fn address(&self) -> Option<String> {
        None
    }

    /// What the store can do. Known without I/O; never changes.
    fn capabilities(&self) -> Capabilities;

    /// Tries to take the lock for `ticket` in one server step.
    ///
    /// - A ticket that already holds is granted again with the same token and a lease that starts anew
    ///   and is never shorter than before.
    /// - A ticket that enqueues takes a place in the queue, or keeps the place it has: the repeated
    ///   attempt is the heartbeat of that place.
    /// - A ticket that does not enqueue leaves nothing behind when the lock is held.
    /// - In the step of the grant the ticket [fits](crate::contract::Mode::fits) the holders whose
    ///   leases last. Each holder has a lease of its own.
    /// - A ticket that shares is not granted while an exclusive ticket waits that asked before; where
    ///   waiters have no order, while one waits that asked within the last
    ///   [`queue_window`](crate::queue_window).
    /// - The token is made in the same server step as the grant. INV-4.
    ///
    /// # Cost
    /// One round trip when the lock is free, on most stores.
    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError>;

    /// Opens the wake-ups of `ticket`, which has been attempted.
    ///
    /// `Ok` means that no later wake-up can be missed. Wake-ups that came since the attempt was
    /// written are yielded first; if the source of wake-ups was not open when the attempt was
    /// written, the watch yields [`Wake::Retry`] at once. Called where
    /// [`waiting`](Capabilities::waiting) is `Push` or [`tells_loss`](Capabilities::tells_loss) is
    /// true; elsewhere it may return an error.
    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError>;

    /// Starts the lease of each ticket anew, with that ticket's `ttl`; never creates a hold. INV-5.
    ///
    /// Never makes a lease shorter than it is, however late or doubled the request arrives.
    ///
    /// Returns one result for each ticket, in order. A ticket without a result must not keep
    /// the others waiting longer than one request. At most 500 go into one request.
    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>>;

    /// Ends the hold of `ticket`, or takes it out of the queue. After `Ok` it is never granted.
    ///
    /// Never touches another ticket's hold. A waiter that leaves the head of the queue, and a
    /// holder that goes, pass the lock to the next waiters in the same step: to all at the head that
    /// fit, of which a store may leave those after the first 200 to later steps.
    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError>;

    /// Inspects one lock; `None` if no ticket holds it or waits for it.
    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError>;

    /// Ends the hold on `name` of any ticket, and returns what was there; `None` if it was free.
    ///
    /// The next token is still larger. The former holder learns of it with its next renewal, or
    /// within one round trip where the store reports losses; elsewhere a fixed lease, which is not renewed, is trusted
    /// to its end.
    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError>;

    /// Lists the locks whose names begin with `prefix` and that are held or waited for.
    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError>;

    /// Gives the hold of `ticket` a note in place of its last one, which operators see while the hold
    /// lasts. Returns whether the ticket holds; never creates a hold.
    ///
    /// A store that keeps [notes](Capabilities::notes) implements it. At most 512 bytes, on one line.
    async fn note(&self, ticket: &Ticket, _text: &str) -> Result<bool, BackendError> {
        Err(not_offered(self.backend(), "note", &ticket.name))
    }

    /// Makes the hold of `from` that of `ticket`, in one step: with the same token, and with the ticket's
    /// mode and lease. `Held` if `from` does not hold, or the
    /// mode does not fit the other holders.
    ///
    /// A store that [hands over](Capabilities::adopts) implements it. The lease is never made shorter. A
    /// ticket that has adopted is granted again.
    async fn adopt(&self, _from: HolderId, ticket: &Ticket) -> Result<Attempt, BackendError> {
        Err(not_offered(self.backend(), "adopt", &ticket.name))
    }

    /// The client does not release this ticket, or not any more: another one has its hold, its lease ends it, or the
    /// client's runtime has stopped. The store forgets what it keeps of it in this process. It asks the server for nothing, unless
    /// nothing else ends the hold.
    fn forget(&self, _holder: HolderId) {}

    /// The store itself; a decorator returns the store inside it. It serves
    /// [`LockClient::store`](crate::LockClient::store).
    fn as_any(&self) -> &dyn Any;
}

/// The client asks the capabilities first.
fn not_offered(store: &'static str, operation: &'static str, name: &LockName) -> BackendError {
    let why = format!("the store does not offer this (`{name}`)");
    BackendError::new(store, operation, Outcome::Rejected, why)
}

/// The wake-ups of one ticket.
#[async_trait]
pub trait Watch: Send {
    /// Waits for the next wake-up.
    ///
    /// # Cancel safety
    /// Cancel safe: a wake-up that was not returned is returned by the next call.
    async fn changed(&mut self) -> Result<Wake, BackendError>;
}

/// What a watch reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// An attempt may succeed now. May be spurious.
    Retry,
    /// The store has made the ticket the holder. Definite.
    Granted(Grant),
    /// The hold, or the place in the queue, is gone. Definite.
    Lost(LossReason),
}
