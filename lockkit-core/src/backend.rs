//! The contract between the client and a store.
//!
//! A store carries out one atomic server step at a time. Waiting, renewal, loss, reentry and retry
//! are decided in this crate, once for all stores; nothing of that belongs into a store.

use std::any::Any;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::capability::Capabilities;
use crate::clock::Moment;
use crate::error::{BackendError, LossReason};
use crate::holder::HolderId;
use crate::name::LockName;
use crate::token::FencingToken;
pub use crate::tombstones::Tombstones;

/// A service that grants named, fenced, reentrant leases. This is what a store implements.
///
/// Despite its name it stands for a whole store and not for one lock: what a user locks is a
/// [`Lock`](crate::Lock), made by a [`LockClient`](crate::LockClient) over one of these. A program that
/// only uses locks does not need this trait.
///
/// # Behavior
/// - Every step is idempotent by ticket: the client repeats any of them after a lost reply.
/// - Every future may be dropped at any await; the request may then still be carried out.
/// - Calls for one ticket never overlap, except `renew` beside `release`.
/// - The client calls `release` for every attempted ticket, until it answers `Ok` or the lease must
///   have ended, and never uses the ticket afterwards. It leaves that out where every answer was
///   [`Rejected`](crate::Outcome::Rejected) or, for a ticket that does not enqueue,
///   [`Attempt::Held`]: after those the store must not keep any state of the ticket.
/// - A request of a released ticket that the server carries out late must not become a hold that
///   something keeps alive.
/// - Errors carry no secrets, and an [`Outcome`](crate::Outcome) that is true.
#[async_trait]
pub trait DistributedLock: Debug + Send + Sync + 'static {
    /// The store's name for messages, metrics and reports: `redis`, `file`, `memory`.
    fn backend(&self) -> &'static str;

    /// What the store can do. Known without I/O; never changes.
    fn capabilities(&self) -> Capabilities;

    /// Tries to take the lock for `ticket` in one server step.
    ///
    /// - A ticket that already holds is granted again with the same token and a lease that starts anew
    ///   and is never shorter than before.
    /// - A ticket that enqueues takes a place in the queue, or keeps the place it has: the repeated
    ///   attempt is the heartbeat of that place.
    /// - A ticket that does not enqueue leaves nothing behind when the lock is held.
    /// - The token is made in the same server step as the grant. INV-4.
    ///
    /// # Cost
    /// One round trip when the lock is free.
    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError>;

    /// Opens the wake-ups of `ticket`, which has been attempted.
    ///
    /// `Ok` means that no later wake-up can be missed. Wake-ups that came since the attempt was
    /// written are yielded first; if the source of wake-ups was not open when the attempt was
    /// written, the watch yields [`Wake::Retry`] at once. Called where
    /// [`waiting`](Capabilities::waiting) is `Push` or [`tells_loss`](Capabilities::tells_loss) is
    /// true; elsewhere it may answer an error.
    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError>;

    /// Starts the lease of each ticket anew, with that ticket's `ttl`; never creates a hold. INV-5.
    ///
    /// Never makes a lease shorter than it is, however late or doubled the request arrives.
    ///
    /// Answers one result for each ticket, in order. A ticket that cannot be answered must not keep
    /// the others waiting longer than one request. At most 500 go into one request.
    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>>;

    /// Ends the hold of `ticket`, or takes it out of the queue. After `Ok` it is never granted.
    ///
    /// Never touches another ticket's hold. A waiter that leaves the head of the queue, and a
    /// holder that goes, pass the lock to the next waiter in the same step.
    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError>;

    /// Looks at one lock; `None` if nobody holds it or waits for it.
    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError>;

    /// Ends the hold on `name`, whoever has it, and answers what was there; `None` if it was free.
    ///
    /// The next token is still larger. The former holder learns of it with its next renewal, or
    /// within one round trip where the store tells losses.
    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError>;

    /// Lists the locks whose names begin with `prefix` and that somebody holds or waits for.
    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError>;

    /// The ticket as the innermost store sees it. A store answers a copy; a decorator that rewrites
    /// tickets applies its own change and asks the store inside. Every guarded write begins with it.
    fn resolve(&self, ticket: &Ticket) -> Ticket;

    /// The store itself; a decorator answers the store inside it. It serves
    /// [`LockClient::store`](crate::LockClient::store).
    fn as_any(&self) -> &dyn Any;
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
    /// It is worth while to attempt again. May be spurious.
    Retry,
    /// The store has made the ticket the holder. Definite.
    Granted(Grant),
    /// The hold, or the place in the queue, is gone. Definite.
    Lost(LossReason),
}

/// A request for a lock, before and after it is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ticket {
    /// Which lock.
    pub name: LockName,
    /// Who asks. Unique to this ticket.
    pub holder: HolderId,
    /// What kind of hold.
    pub mode: Mode,
    /// The lease that is wished, as the store counts it.
    pub ttl: Duration,
    /// Whether it takes a place in the queue when the lock is held. `false` is a mere try.
    pub enqueue: bool,
}

impl Ticket {
    /// A ticket for an exclusive hold, that waits when the lock is held.
    #[must_use]
    pub const fn new(name: LockName, holder: HolderId, ttl: Duration) -> Self {
        Self {
            name,
            holder,
            mode: Mode::Exclusive,
            ttl,
            enqueue: true,
        }
    }

    /// The same ticket as a mere try, or as one that waits.
    #[must_use]
    pub const fn with_enqueue(mut self, enqueue: bool) -> Self {
        self.enqueue = enqueue;
        self
    }

    /// The same ticket with another lease.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The same ticket for another name, as decorators need it.
    #[must_use]
    pub fn with_name(mut self, name: LockName) -> Self {
        self.name = name;
        self
    }
}

/// What kind of hold a ticket asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// One holder at a time.
    Exclusive,
}

/// The lock is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// Larger than every token that was given for this name before.
    pub token: FencingToken,
    /// The client's clock before the last acknowledged request that set this lease was written.
    ///
    /// A store with a lease per hold leaves `None`: the client knows, for it sent that request. A
    /// session store gives the moment of its last acknowledged keep-alive.
    pub since: Option<Moment>,
    /// The lease stands for this long from `since` on.
    pub ttl: Duration,
}

impl Grant {
    /// A grant whose lease was set by the request that it answers.
    #[must_use]
    pub const fn new(token: FencingToken, ttl: Duration) -> Self {
        Self {
            token,
            since: None,
            ttl,
        }
    }

    /// A grant on a lease that was last confirmed at `since`.
    #[must_use]
    pub const fn with_since(mut self, since: Moment) -> Self {
        self.since = Some(since);
        self
    }
}

/// The answer to an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempt {
    /// The ticket holds.
    Granted(Grant),
    /// Somebody else holds, or stands before this ticket in the queue.
    Held {
        /// When the lock may become free by itself: a hint for waiters that poll.
        retry_after: Option<Duration>,
    },
}

impl Attempt {
    /// The lock is held, and nothing more is known.
    #[must_use]
    pub const fn held() -> Self {
        Self::held_for(None)
    }

    /// The lock is held, and may become free by itself after `retry_after`.
    #[must_use]
    pub const fn held_for(retry_after: Option<Duration>) -> Self {
        Self::Held { retry_after }
    }
}

/// The answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// The lease stands.
    Renewed {
        /// As in [`Grant::since`].
        since: Option<Moment>,
        /// The lease stands for at least this long from `since` on. Less than the ticket asked for
        /// where the store cannot change the length of a lease.
        ttl: Duration,
    },
    /// The ticket does not hold. Definite.
    NotHeld,
}

impl Renewal {
    /// A renewal whose lease of `ttl` was set by the request that it answers.
    #[must_use]
    pub const fn renewed(ttl: Duration) -> Self {
        Self::Renewed { since: None, ttl }
    }
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// The ticket held until now.
    Released,
    /// The ticket did not hold; if it waited, it has left the queue.
    NotHeld,
}

/// What an operator sees of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct LockState {
    /// Its name.
    pub name: LockName,
    /// Who holds it, in the store's own words: `{client}:{n}` for holds of this library.
    pub holders: Vec<String>,
    /// The token of the hold, or the last one given, if the store keeps one.
    pub token: Option<FencingToken>,
    /// Until the lease ends, if it ends by itself.
    pub remaining: Option<Duration>,
    /// How many wait, if the store knows.
    pub waiters: Option<u32>,
}

impl LockState {
    /// A lock that nobody holds, and of which nothing else is known.
    #[must_use]
    pub const fn new(name: LockName) -> Self {
        Self {
            name,
            holders: Vec::new(),
            token: None,
            remaining: None,
            waiters: None,
        }
    }

    /// Adds a holder.
    #[must_use]
    pub fn with_holder(mut self, holder: impl Into<String>) -> Self {
        self.holders.push(holder.into());
        self
    }

    /// Sets the token.
    #[must_use]
    pub const fn with_token(mut self, token: Option<FencingToken>) -> Self {
        self.token = token;
        self
    }

    /// Sets the time left.
    #[must_use]
    pub const fn with_remaining(mut self, remaining: Option<Duration>) -> Self {
        self.remaining = remaining;
        self
    }

    /// Sets the number of waiters.
    #[must_use]
    pub const fn with_waiters(mut self, waiters: Option<u32>) -> Self {
        self.waiters = waiters;
        self
    }
}
