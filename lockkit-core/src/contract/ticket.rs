//! What the client and a store say to each other: tickets, grants and the other results.

use std::sync::Arc;
use std::time::Duration;

use super::capability::Mode;
use super::holder::HolderId;
use super::name::LockName;
use super::token::FencingToken;
use super::work::Work;
use crate::time::clock::Moment;

/// A request for a lock, before and after it is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ticket {
    /// Which lock.
    pub name: LockName,
    /// Who asks. Unique to this ticket.
    pub holder: HolderId,
    /// Which program asks, for operators to read; one line.
    pub label: Option<Arc<str>>,
    /// What kind of hold.
    pub mode: Mode,
    /// The requested lease, as the store counts it.
    pub ttl: Duration,
    /// Whether it takes a place in the queue when the lock is held. `false` is a try.
    pub enqueue: bool,
    /// What the store is to do in the step that grants the ticket, if it is in an attempt, or ends its hold,
    /// if it is in a release.
    ///
    /// Only the store whose API made the work knows it; others ignore it, so that no other code may set it.
    /// Renewals, notes and releases in the background carry none.
    pub work: Option<Work>,
}

impl Ticket {
    /// A ticket for an exclusive hold, that waits when the lock is held.
    #[must_use]
    pub const fn new(name: LockName, holder: HolderId, ttl: Duration) -> Self {
        Self {
            name,
            holder,
            label: None,
            mode: Mode::Exclusive,
            ttl,
            enqueue: true,
            work: None,
        }
    }

    /// The same ticket as a try, or as one that waits.
    #[must_use]
    pub const fn with_enqueue(mut self, enqueue: bool) -> Self {
        self.enqueue = enqueue;
        self
    }

    /// The same ticket for a hold of another kind.
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The same ticket with another lease.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The same ticket with other work, or without any.
    #[must_use]
    pub fn with_work(mut self, work: Option<Work>) -> Self {
        self.work = work;
        self
    }
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
    /// The lease lasts for this long from `since` on.
    pub ttl: Duration,
}

impl Grant {
    /// A grant whose lease was set by the request that led to it.
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

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempt {
    /// The ticket holds.
    Granted(Grant),
    /// Another ticket holds, or is before this one in the queue.
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

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Renewal {
    /// The lease was renewed.
    Renewed {
        /// As in [`Grant::since`].
        since: Option<Moment>,
        /// The lease lasts for at least this long from `since` on. Less than the ticket asked for
        /// where the store cannot change the length of a lease.
        ttl: Duration,
    },
    /// The ticket does not hold. Definite.
    NotHeld,
    /// The same, because the session that carried the hold has ended.
    SessionEnded,
}

impl Renewal {
    /// A renewal whose lease of `ttl` was set by its own request.
    #[must_use]
    pub const fn renewed(ttl: Duration) -> Self {
        Self::Renewed { since: None, ttl }
    }
}

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Release {
    /// The ticket held until now.
    Released,
    /// The ticket did not hold; if it waited, it has left the queue.
    NotHeld,
}
