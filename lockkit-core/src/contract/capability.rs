//! What a store can do, known without asking it.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// Describes a store to the client and to the conformance suite, which tests every field both ways.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use lockkit_core::{Capabilities, Queueing, Waiting};
///
/// let capabilities = Capabilities {
///     min_ttl: Duration::from_secs(2),
///     queueing: Queueing::Fifo,
///     waiting: Waiting::Push,
///     ..Capabilities::new()
/// };
/// assert_eq!(capabilities.waiting, Waiting::Push);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    clippy::exhaustive_structs,
    reason = "stores write it with `..Capabilities::new()`"
)]
pub struct Capabilities {
    /// The shortest lease.
    pub min_ttl: Duration,
    /// The longest lease.
    pub max_ttl: Duration,
    /// Leases are multiples of this; the client refuses others rather than rounding them.
    pub ttl_step: Duration,
    /// Whether each hold has a lease of its own.
    pub ttl_of: TtlOf,
    /// In which order waiters are served.
    pub queueing: Queueing,
    /// How a waiter learns that the lock is free.
    pub waiting: Waiting,
    /// The shortest and the longest pause between two attempts of a waiter where `waiting` is
    /// [`Waiting::Poll`].
    pub poll: PollRange,
    /// A waiter repeats its attempt at least this often, with or without wake-ups.
    pub recheck: Duration,
    /// Whether [`Watch::changed`](crate::contract::Watch::changed) reports the end of a hold.
    pub tells_loss: bool,
    /// What frees the lock of a holder that crashed.
    pub ends_by: EndsBy,
    /// What can be lost when a server fails and another one takes over.
    pub failover: Failover,
    /// Whether tickets may have modes other than [`Mode::Exclusive`]. A store has all modes or only that one.
    pub shares: bool,
    /// Whether a hold can have a [note](crate::DistributedLock::note).
    pub notes: bool,
    /// Whether a hold can pass [from one ticket to another](crate::DistributedLock::adopt).
    pub adopts: bool,
}

impl Capabilities {
    /// The most careful description: leases of their own from 100 ms to a day, no order among
    /// waiters, which poll every 50 ms to 1 s; a loss is found by the next renewal.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            min_ttl: Duration::from_millis(100),
            max_ttl: Duration::from_secs(86_400),
            ttl_step: Duration::from_millis(1),
            ttl_of: TtlOf::PerHold,
            queueing: Queueing::Barging,
            waiting: Waiting::Poll,
            poll: PollRange {
                min: Duration::from_millis(50),
                max: Duration::from_secs(1),
            },
            recheck: Duration::from_secs(3),
            tells_loss: false,
            ends_by: EndsBy::Lease,
            failover: Failover::Alone,
            shares: false,
            notes: false,
            adopts: false,
        }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::new()
    }
}

/// Whose lease a hold has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TtlOf {
    /// Each hold has its own, set by its attempt and by its renewals.
    PerHold,
    /// Holds of a client share the lease of a session, which may be older than the attempt.
    PerSession,
}

/// In which order waiters are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Queueing {
    /// In the order in which their first attempts reached the store.
    Fifo,
    /// In any order: the first attempt after a release gets the lock.
    Barging,
}

/// How a waiter learns that the lock is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Waiting {
    /// The store wakes it.
    Push,
    /// It polls.
    Poll,
}

/// What frees the lock of a holder that crashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndsBy {
    /// Its lease runs out, at most `ttl` after its last renewal.
    Lease,
    /// Its session ends: the session's lease runs out, or the store sees the connection close.
    Session,
    /// The operating system sees the process end; a process that is merely frozen keeps the lock.
    Process,
}

/// What can be lost when a server fails and another one takes over. A later one promises more, so that `>=` compares.
///
/// # Examples
/// ```
/// use lockkit_core::memory::MemoryStore;
/// use lockkit_core::{DistributedLock as _, Failover};
///
/// let store = MemoryStore::new();
/// // A program that needs more does not start.
/// assert!(store.capabilities().failover < Failover::Guarded);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Failover {
    /// The store counts on one server, or leaves it to the servers what they replicate. What is lost is lost: another
    /// client may hold the lock at once.
    Alone,
    /// Two clients may hold the lock for as long as a lease lasts. Tokens grow, so that checked ones protect the data.
    Fenced,
    /// No two clients hold the lock: a server that takes over grants nothing until all leases have ended that it may not
    /// know of. The store's page says what a server needs that is cut off and lives on.
    Guarded,
    /// A majority of the servers decides, and has every hold.
    Majority,
}

/// The shortest and the longest pause of a waiter that polls; pauses grow from one to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PollRange {
    /// The first pause.
    pub min: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl PollRange {
    /// Makes a range. `min` is at least a millisecond, because pauses grow from it by doubling; `max` is raised to `min`
    /// if it is below it.
    #[must_use]
    pub fn new(min: Duration, max: Duration) -> Self {
        let min = min.max(Duration::from_millis(1));
        Self {
            min,
            max: max.max(min),
        }
    }
}

/// What kind of hold a ticket asks for, and beside which others it may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum Mode {
    /// One holder at a time.
    Exclusive,
    /// The writer of a readers-writer lock. It excludes as `Exclusive` does; only stores that share
    /// their locks with programs that name the two apart treat it differently.
    Write,
    /// A reader: it holds beside other readers, and beside permits that have room for it.
    Read,
    /// One of `of` permits: it holds beside fewer than `of` others.
    Permit {
        /// How many may hold at once.
        of: NonZeroU32,
    },
}

impl Mode {
    /// Whether no other ticket may hold beside it.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        matches!(self, Self::Exclusive | Self::Write)
    }

    /// How many tickets may hold together, this one included.
    #[must_use]
    pub const fn room(self) -> u32 {
        match self {
            Self::Exclusive | Self::Write => 1,
            Self::Read => u32::MAX,
            Self::Permit { of } => of.get(),
        }
    }

    /// Whether a ticket may hold beside `others` that hold or are before it, of which one is
    /// `exclusive` or none. The rule of all modes; stores that decide in a script or a statement spell it
    /// out there.
    #[must_use]
    pub const fn fits(self, others: u32, exclusive: bool) -> bool {
        !exclusive && others < self.room()
    }

    /// Whether a hold in this mode serves an owner that asks for `other`: it lets no more tickets hold
    /// beside it.
    pub(crate) const fn covers(self, other: Self) -> bool {
        self.is_exclusive() || (!other.is_exclusive() && self.room() <= other.room())
    }
}

/// `exclusive`, `write`, `read` or `permit of 4`.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Write => f.write_str("write"),
            Self::Read => f.write_str("read"),
            Self::Permit { of } => write!(f, "permit of {of}"),
        }
    }
}
