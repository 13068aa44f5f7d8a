//! Releases.

use lockkit_core::BackendError;
use lockkit_core::contract::{Release, Ticket};

use super::error::ERRORS;
use super::store::Postgres;
use crate::pool::Use;

impl Postgres {
    /// Ends a hold. A release that ends nothing may have met a row that was locked: then it is tried again.
    pub(super) async fn end(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.listener.waiters.forget(ticket.holder);
        for _ in 0..3 {
            let release = &self.statements.release;
            let rows = self.step("release", release, ticket, 0, 0).await?;
            if let Some(row) = rows.first() {
                let stood = sqlx::Row::try_get(row, 0);
                return match stood.map_err(|_| ERRORS.unreadable("release"))? {
                    true => Ok(Release::Released),
                    false => Ok(Release::NotHeld),
                };
            }
            let text = self.statements.mine(ticket);
            if self.ask("release", Use::Step, text).await?.is_empty() {
                return Ok(Release::NotHeld);
            }
        }
        Err(ERRORS.skipped("release"))
    }
}
