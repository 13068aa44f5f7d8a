//! A step: a call of the contract, and what it finds.

use std::fmt;
use std::num::NonZeroU32;

use lockkit_core::contract::Mode;

/// The mode of a holder that others wait for.
pub const WRITER: &[Mode] = &[Mode::Exclusive];

/// The only permit.
pub const PERMIT: Mode = Mode::Permit {
    of: NonZeroU32::MIN,
};

/// A call of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "they have the names of the functions")]
pub enum Call {
    Attempt,
    Adopt,
    Watch,
    Renew,
    Release,
    Break,
    Note,
    Inspect,
    List,
}

/// A call of the contract with one ticket, and what it finds.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub(super) name: &'static str,
    pub(super) call: Call,
    pub(super) mode: Mode,
    pub(super) enqueues: bool,
    /// The ticket was attempted before.
    pub(super) is_known: bool,
    /// The lock was released before.
    pub(super) is_used: bool,
    /// Another program holds the lock.
    pub(super) is_foreign: bool,
    pub(super) may_write: bool,
    /// The modes of tickets that hold before, and of one that is attempted later.
    pub(super) before: &'static [Mode],
    pub(super) later: Option<Mode>,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A step with a name that no other step of the table has.
///
/// Unless the methods say otherwise: its ticket is exclusive, enqueues, and is the only one; an attempt is its first,
/// and for other calls it was granted before.
pub const fn step(name: &'static str, call: Call) -> Step {
    Step {
        name,
        call,
        mode: Mode::Exclusive,
        enqueues: true,
        is_known: !matches!(call, Call::Attempt | Call::Adopt),
        is_used: false,
        is_foreign: false,
        may_write: !matches!(call, Call::Inspect | Call::List),
        before: &[],
        later: None,
    }
}

impl Step {
    /// Its ticket is of this mode.
    pub const fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Its ticket takes no place in the queue.
    pub const fn once(self) -> Self {
        Self {
            enqueues: false,
            ..self
        }
    }

    /// Its ticket was attempted before, or was not.
    pub const fn known(self, is_known: bool) -> Self {
        Self { is_known, ..self }
    }

    /// The lock was held and released before.
    pub const fn used(self) -> Self {
        Self {
            is_used: true,
            ..self
        }
    }

    /// Another program holds the lock. The test has to see to that.
    pub const fn foreign(self) -> Self {
        Self {
            is_foreign: true,
            ..self
        }
    }

    /// It sends no request that writes, so that its outcome is always known.
    pub const fn reads(self) -> Self {
        Self {
            may_write: false,
            ..self
        }
    }

    /// Tickets of these modes hold before.
    pub const fn behind(self, before: &'static [Mode]) -> Self {
        Self { before, ..self }
    }

    /// A ticket of this mode is attempted after that of the step.
    pub const fn ahead_of(self, later: Mode) -> Self {
        let later = Some(later);
        Self { later, ..self }
    }

    /// What is called.
    #[must_use]
    pub const fn call(self) -> Call {
        self.call
    }

    /// Whether all its tickets are exclusive.
    #[must_use]
    pub fn is_exclusive(self) -> bool {
        let mut modes = self.before.iter().chain(&self.later).chain([&self.mode]);
        modes.all(|mode| mode.is_exclusive())
    }
}
