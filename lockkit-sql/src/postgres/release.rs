//! Releases: of a row, or of the transaction that pins it.

use std::time::Duration;

use lockkit_core::BackendError;
use lockkit_core::backend::{Release, Ticket};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::sleep;

use super::Postgres;
use super::error::ERRORS;
use super::kept::Kind;
use super::pin::Unpinned;
use super::session::unreadable;
use crate::pool::Use;

/// So often it is asked whether a transaction has ended, after pauses that double: half a second in all.
const ASKED: u32 = 9;

impl Postgres {
    pub(super) async fn release_hold(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let mut unanswered = None;
        if let Some(pins) = &self.pins {
            let text = self.statements.unpin(ticket);
            match pins.release(ticket, text).await {
                Unpinned::Answered(answer) => {
                    self.desk.forget(ticket);
                    return Ok(answer);
                }
                Unpinned::Unanswered(error, transaction) => {
                    match self.has_committed(transaction).await {
                        Some(true) => {
                            self.desk.forget(ticket);
                            return Ok(Release::Released);
                        }
                        Some(false) => {}
                        None => unanswered = Some(error),
                    }
                }
                Unpinned::Gone => {}
            }
        }
        let rows = self.end(ticket).await?;
        self.desk.forget(ticket);
        if let Some(error) = unanswered {
            // The pin ended with its connection. If the row still named its hold, then before the
            // release; if not, the release may have been carried out.
            return match rows.first() {
                Some(_) => Ok(Release::NotHeld),
                None => Err(error),
            };
        }
        match rows.first().map(|row| row.try_get::<bool, _>(0)) {
            Some(Err(_)) => Err(unreadable("release")),
            // What a pin leaves in its row is no hold, however fresh it is.
            Some(Ok(true)) if self.pins.is_none() => Ok(Release::Released),
            None | Some(Ok(_)) => Ok(Release::NotHeld),
        }
    }

    /// Whether a transaction was committed; `None` if the server does not say.
    async fn has_committed(&self, transaction: i64) -> Option<bool> {
        for asked in 0..ASKED {
            let text = self.statements.ended(transaction);
            // Other connections may have gone with that of the pin.
            if let Ok(rows) = self.ask("release", Use::Step, text).await {
                match rows.first()?.try_get::<Option<&str>, _>(0).ok()?? {
                    "committed" => return Some(true),
                    "aborted" => return Some(false),
                    // The server has not seen yet that the connection is gone.
                    _ => {}
                }
            }
            sleep(Duration::from_millis(1 << asked)).await;
        }
        None
    }

    /// Ends a hold of which no connection knows; answers no row if there was none.
    async fn end(&self, ticket: &Ticket) -> Result<Vec<PgRow>, BackendError> {
        for _ in 0..3 {
            let rows = if self.pins.is_some() {
                let text = self.statements.release_pin(ticket);
                self.ask("release", Use::Step, text).await?
            } else {
                self.step("release", Kind::Release, ticket, false).await?
            };
            if !rows.is_empty() {
                return Ok(rows);
            }
            let text = self.statements.mine(ticket);
            if self.ask("release", Use::Step, text).await?.is_empty() {
                return Ok(rows);
            }
        }
        Err(ERRORS.skipped("release"))
    }
}
