//! Messages to the server and what comes back.

use lockkit_core::backend::{Attempt, Grant, Ticket};
use lockkit_core::{BackendError, Outcome};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Executor, Postgres as Driver, Row as _};
use std::time::Duration;

use super::error::ERRORS;
use crate::error::{Phase, SqlFault};
use crate::row::{self, Row};

/// Sends one message of one or more statements, and reads all their rows.
///
/// It goes as a simple query: nothing stays prepared in a session that a pooler may give to somebody
/// else.
pub(super) async fn send<'c, E>(executor: E, text: String) -> Result<Vec<PgRow>, sqlx::Error>
where
    E: Executor<'c, Database = Driver>,
{
    sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(executor).await
}

pub(super) fn of(operation: &'static str, error: &sqlx::Error) -> BackendError {
    ERRORS.of(operation, Phase::Asking, error)
}

/// Conflicts of transactions under a stricter isolation than ours: tried again at once.
pub(super) fn is_conflict(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    matches!(error.code().as_deref(), Some("40001" | "40P01"))
}

/// A statement that the session keeps is not there, or its table has been changed since. Neither carries
/// out anything.
pub(super) fn is_unprepared(error: &BackendError) -> bool {
    let fault = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    let code = fault.and_then(|fault: &SqlFault| fault.code());
    matches!(code, Some("26000" | "42P05" | "0A000"))
}

/// What an attempt found.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) token: Option<i64>,
    /// Whether the row was there; if it was not, another is making it.
    pub(super) known: bool,
    held: bool,
    left: i64,
    pub(super) pinned: bool,
    /// Until the note of those who wait ends.
    note: i64,
}

/// What is to be done about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Answer(Attempt),
    /// Somebody had the row locked for the moment, or nobody has left a note yet.
    Again,
}

impl Seen {
    pub(super) fn read(rows: &[PgRow]) -> Result<Self, sqlx::Error> {
        let Some(row) = rows.first() else {
            return Ok(Self {
                token: None,
                known: false,
                held: false,
                left: 0,
                pinned: false,
                note: 0,
            });
        };
        let left: Option<i64> = row.try_get(2)?;
        Ok(Self {
            token: row.try_get(0)?,
            known: left.is_some(),
            held: row.try_get::<Option<bool>, _>(1)?.unwrap_or(false),
            left: left.unwrap_or(0),
            pinned: row.try_get::<Option<bool>, _>(3)?.unwrap_or(false),
            note: row.try_get::<Option<i64>, _>(4)?.unwrap_or(0),
        })
    }

    /// For how long a release will still be told to somebody.
    pub(super) fn noted_for(&self) -> Duration {
        Duration::from_micros(self.note.try_into().unwrap_or(0))
    }

    /// Reads what was found for a ticket; `noted` if somebody is to be told of a release.
    pub(super) fn verdict(&self, ticket: &Ticket, wants_note: bool, last: bool) -> Verdict {
        if let Some(token) = self.token {
            return match row::token(token) {
                Some(token) => Verdict::Answer(Attempt::Granted(Grant::new(token, ticket.ttl))),
                None => Verdict::Again,
            };
        }
        // A pin tells everybody of its end, and keeps its row locked until then.
        let pinned = self.pinned && !self.held;
        let told = !wants_note || self.pinned || self.note > 0;
        if !last && !pinned && (!self.held || !told) {
            return Verdict::Again;
        }
        Verdict::Answer(Attempt::held_for(match u64::try_from(self.left) {
            _ if self.pinned => None,
            // Nobody will tell: the row was locked, by a release perhaps.
            _ if !told || !self.held => Some(MOMENT),
            Ok(left) => Some(Duration::from_micros(left)),
            Err(_) => Some(MOMENT),
        }))
    }
}

/// How long a row is locked by a step, and by a commit that waits for the disk.
const MOMENT: Duration = Duration::from_millis(10);

/// Takes the row of `pin.sql` out of an answer, if it is there: the transaction that keeps the row
/// locked.
pub(super) fn take_pin(rows: &mut Vec<PgRow>) -> Option<i64> {
    let said: &str = rows.last()?.try_get(0).ok()?;
    let transaction = said.strip_prefix("pinned")?.parse().ok()?;
    rows.pop();
    Some(transaction)
}

pub(super) fn read(row: &PgRow) -> Result<Row, sqlx::Error> {
    Ok(Row {
        name: row.try_get(0)?,
        holder: row.try_get(1)?,
        token: row.try_get(2)?,
        left: row.try_get(3)?,
        pinned: row.try_get(4)?,
    })
}

/// No answer of the shape that was asked for.
pub(super) fn unreadable(operation: &'static str) -> BackendError {
    ERRORS.unreadable(operation)
}

/// Nothing of this is repeated by itself.
pub(super) fn rejected(
    operation: &'static str,
    problem: crate::error::Problem,
    text: &str,
) -> BackendError {
    ERRORS.fault(operation, problem, Outcome::Rejected, text)
}
