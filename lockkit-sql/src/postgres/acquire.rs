//! Attempts: one statement takes the row, or leaves a note for its holder.

use std::time::Duration;

use lockkit_core::BackendError;
use lockkit_core::contract::{Attempt, Grant, Ticket};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::sleep;

use super::error::ERRORS;
use super::statements::NOTE;
use super::store::Postgres;
use crate::{looks, row};

/// How long a row is locked by a step, and by a commit that waits for the disk.
const MOMENT: Duration = Duration::from_millis(10);

/// What an attempt found.
#[derive(Debug)]
struct Found {
    token: Option<i64>,
    held: bool,
    /// Microseconds until the lease ends.
    left: i64,
    /// Microseconds for which a release will be notified.
    note: i64,
}

impl Postgres {
    /// Takes the lock, and ties the hold to the session of this client if there is one.
    pub(super) async fn acquire(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let session = self.listener.session("attempt").await?;
        let waiters = &self.listener.waiters;
        if session == 0 && !(self.push && ticket.enqueue) {
            return self.take(ticket, session).await;
        }
        let number = waiters.attempted(ticket);
        let mut result = self.take(ticket, session).await;
        if session != 0 && matches!(result, Ok(Attempt::Granted(_))) {
            // First the hold is known to belong to the session, then the session is looked at: if it
            // ends, one of the two is seen.
            waiters.with(ticket.holder, |entry| entry.data = session);
            if !self.listener.is_open(session) {
                result = Err(self.listener.ended("attempt"));
            }
        }
        waiters.answered(ticket, number, &result);
        result
    }

    /// Asks again while the row is locked for the moment, which says nothing: a waiter once, since it
    /// comes back anyway.
    async fn take(&self, ticket: &Ticket, session: i64) -> Result<Attempt, BackendError> {
        let note = if self.push && ticket.enqueue { NOTE } else { 0 };
        let most = if ticket.enqueue { 1 } else { usize::MAX };
        let mut pauses = looks::pauses().take(most);
        loop {
            let acquire = &self.statements.acquire;
            let rows = self.step("attempt", acquire, ticket, note, session).await?;
            let found = Found::read(&rows).map_err(|_| ERRORS.unreadable("attempt"))?;
            if let Some(token) = found.token.and_then(row::token) {
                return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
            }
            let notified = note == 0 || found.note > 0;
            match pauses.next() {
                Some(pause) if !found.held || !notified => sleep(pause).await,
                _ => return Ok(Attempt::held_for(Some(found.retry_after(notified)))),
            }
        }
    }
}

impl Found {
    fn read(rows: &[PgRow]) -> Result<Self, sqlx::Error> {
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        Ok(Self {
            token: row.try_get(0)?,
            held: row.try_get::<Option<bool>, _>(1)?.unwrap_or(false),
            left: row.try_get::<Option<i64>, _>(2)?.unwrap_or(0),
            note: row.try_get::<Option<i64>, _>(3)?.unwrap_or(0),
        })
    }

    /// When the lock may be free; soon if the row was locked, by a release perhaps, or if no release will
    /// be notified.
    fn retry_after(&self, notified: bool) -> Duration {
        match u64::try_from(self.left) {
            Ok(left) if self.held && notified => Duration::from_micros(left),
            _ => MOMENT,
        }
    }
}
