//! Checks of recorded histories, each in one sweep over sorted events.
//!
//! A checker returns the two lines that contradict each other, so that a failure can be looked up in
//! the history. [`check`] runs those that hold whatever was broken; the others need to be told what
//! the test did.

mod holds;
mod liveness;
mod safety;
mod sections;
mod stops;

use std::fmt;

pub use holds::Hold;
pub use liveness::everyone_served;
pub use safety::{beliefs_fit, losses_are_final, reentry_keeps_token, tokens_grow};
pub use sections::{Entry, StoredSections, sections_follow};
pub use stops::{no_loss_without_a_stop, stale_writes_refused};

use crate::history::{Event, History};

/// Two lines of a history that cannot both be true of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    rule: &'static str,
    first: String,
    second: String,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, first: &Event, second: &Event) -> Self {
        Self {
            rule,
            first: first.line(),
            second: second.line(),
        }
    }

    /// The promise that was broken.
    #[must_use]
    pub const fn rule(&self) -> &'static str {
        self.rule
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\n  {}\n  {}", self.rule, self.first, self.second)
    }
}

impl std::error::Error for Violation {}

/// Runs the checks that every history must pass: beliefs fit, losses are final, tokens are unique and grow,
/// reentry keeps the token.
///
/// # Errors
/// - [`Violation`] with the first pair of lines that contradict each other.
///
/// # Cost
/// `n log n` for `n` events.
pub fn check(history: &History) -> Result<(), Violation> {
    beliefs_fit(history)?;
    losses_are_final(history)?;
    tokens_grow(history)?;
    reentry_keeps_token(history)
}
