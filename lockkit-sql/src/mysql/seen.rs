//! What the answers of the server mean.

use std::time::Duration;

use lockkit_core::BackendError;
use lockkit_core::backend::{Attempt, Grant, Release, Ticket};

use super::error::ERRORS;
use super::message::{self, Answer};
use crate::row;

/// What a message of `acquire.sql` answered: the token, if the lock is
/// given.
pub(super) fn taken(answers: &[Answer]) -> Option<i64> {
    let given = answers.iter().find(|answer| answer.changed > 0)?;
    i64::try_from(given.insert_id).ok()
}

/// What the row of a lock says that was not given.
pub(super) struct Seen {
    pub(super) mine: bool,
    held: bool,
    left: i64,
    pinned: bool,
}

impl Seen {
    /// Reads the answer of `look_again.sql`; `None` if there is no row.
    pub(super) fn read(answer: Option<&Answer>) -> Option<Self> {
        let row = answer?.rows.first()?;
        Some(Self {
            mine: message::truth(row, 0),
            held: message::truth(row, 1),
            left: message::number(row, 2)?,
            pinned: message::truth(row, 3),
        })
    }

    /// Whether the ticket's lease stands.
    pub(super) const fn stands(&self) -> bool {
        self.mine && self.left > 0
    }

    /// Whether the row had only been locked for the moment.
    pub(super) const fn free(&self) -> bool {
        !self.held || self.mine || (self.left <= 0 && !self.pinned)
    }

    pub(super) fn attempt(&self) -> Attempt {
        // The end of a pin is told by no clock.
        let left = u64::try_from(self.left).ok().filter(|_| !self.pinned);
        Attempt::held_for(left.map(Duration::from_micros))
    }
}

pub(super) fn granted(token: i64, ticket: &Ticket) -> Result<Attempt, BackendError> {
    let token = row::token(token).ok_or_else(|| ERRORS.unreadable("attempt"))?;
    Ok(Attempt::Granted(Grant::new(token, ticket.ttl)))
}

/// What a message of `release.sql` answered; `None` if it found no row that
/// nobody had locked.
pub(super) fn released(answers: &[Answer]) -> Option<Release> {
    let first = answers.first().filter(|answer| answer.changed > 0)?;
    Some(match first.insert_id {
        2 => Release::Released,
        _ => Release::NotHeld,
    })
}
