//! What a section writes: the work of a ticket.

use std::sync::Mutex;

use lockkit_core::contract::{Ticket, Work};
use lockkit_core::store::lock;

use crate::fenced::{FencedError, Write, Written};

/// What is written in the transaction that ends a hold.
#[derive(Debug)]
pub(crate) struct Writes {
    pub(crate) writes: Vec<Write>,
    /// The last answer.
    answer: Mutex<Option<Result<Vec<Written>, FencedError>>>,
}

impl Writes {
    pub(crate) fn new(writes: &[Write]) -> Self {
        Self {
            writes: writes.to_vec(),
            answer: Mutex::default(),
        }
    }

    /// What a release of this ticket is to write.
    pub(crate) fn of(ticket: &Ticket) -> Option<&Self> {
        ticket.work.as_ref().and_then(Work::get)
    }

    /// Keeps the answer to a request.
    pub(crate) fn keep(&self, answer: Result<Vec<Written>, FencedError>) {
        *lock(&self.answer) = Some(answer);
    }

    /// The last answer; `None` if there was none.
    pub(crate) fn take(&self) -> Option<Result<Vec<Written>, FencedError>> {
        lock(&self.answer).take()
    }
}
