//! Notes: the value of the key of a hold.

use lockkit_core::contract::Ticket;

use crate::error::{Failed, Result};
use crate::queue;
use crate::shared::Shared;

impl Shared {
    /// Gives a hold a note. Returns whether the ticket holds.
    pub(crate) async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool> {
        let Some(at) = self.alive(ticket.holder).filter(|at| at.held) else {
            return Ok(false);
        };
        let Some(created) = at.created else {
            return Ok(false);
        };
        let value = self.layout.value(ticket, Some(text));
        match self
            .link
            .txn("note", &queue::write(&at, created, value))
            .await
        {
            Ok(answer) => Ok(answer.succeeded()),
            Err(Failed::LeaseGone) => Ok(false),
            Err(failed) => Err(failed.into_error("note")),
        }
    }
}
