//! Requests on one connection, and their replies.

use futures_util::TryStreamExt as _;
use lockkit_core::BackendError;
use sqlx::mysql::{MySqlDatabaseError, MySqlRow};
use sqlx::{AssertSqlSafe, Either, MySqlConnection, Row as _};

use super::error::ERRORS;
use super::statements::{Args, Prepared};
use crate::error::{Phase, unclear};

/// The result of one statement.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// The number of rows that it matched for a change.
    pub(super) changed: u64,
    /// The argument of `LAST_INSERT_ID(..)` in it.
    pub(super) insert_id: u64,
    pub(super) rows: Vec<MySqlRow>,
}

/// Why a request failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: sqlx::Error,
    /// Whether a statement before the one that failed has changed rows.
    changed: bool,
}

impl Failed {
    /// The outcome of the whole request.
    pub(super) fn report(&self, operation: &'static str) -> BackendError {
        let report = ERRORS.of(operation, Phase::Asking, &self.error);
        if self.changed {
            unclear(report)
        } else {
            report
        }
    }

    /// A deadlock, or a row that changed since the transaction's snapshot. It was rolled back.
    pub(super) fn is_conflict(&self) -> bool {
        let sqlx::Error::Database(error) = &self.error else {
            return false;
        };
        let error = error.try_downcast_ref::<MySqlDatabaseError>();
        error.is_some_and(|error| matches!(error.number(), 1213 | 1020))
    }
}

/// Sends any number of statements in one message. It reads all replies: only then can the connection be
/// used again.
pub(super) async fn send(
    connection: &mut MySqlConnection,
    text: &str,
) -> Result<Vec<Reply>, Failed> {
    let mut replies = Vec::new();
    match read(connection, text, &mut replies).await {
        Ok(()) => Ok(replies),
        Err(error) => Err(Failed {
            error,
            changed: replies.iter().any(|reply| reply.changed > 0),
        }),
    }
}

async fn read(
    connection: &mut MySqlConnection,
    text: &str,
    replies: &mut Vec<Reply>,
) -> Result<(), sqlx::Error> {
    let mut rows = Vec::new();
    let query = sqlx::raw_sql(AssertSqlSafe(text.to_owned()));
    let mut stream = query.fetch_many(connection);
    while let Some(item) = stream.try_next().await? {
        match item {
            Either::Right(row) => rows.push(row),
            Either::Left(done) => replies.push(Reply {
                changed: done.rows_affected(),
                insert_id: done.last_insert_id(),
                rows: std::mem::take(&mut rows),
            }),
        }
    }
    Ok(())
}

/// Executes a statement that the connection prepares once.
pub(super) async fn execute(
    connection: &mut MySqlConnection,
    statement: &Prepared,
    args: Args<'_>,
) -> Result<Reply, Failed> {
    match statement.query(args).execute(connection).await {
        Ok(done) => Ok(Reply {
            changed: done.rows_affected(),
            insert_id: done.last_insert_id(),
            rows: Vec::new(),
        }),
        Err(error) => Err(Failed {
            error,
            changed: false,
        }),
    }
}

/// A number in a text reply, whatever its type.
pub(super) fn number(row: &MySqlRow, column: usize) -> Option<i64> {
    text(row, column)?.parse().ok()
}

/// A truth value in a text reply.
pub(super) fn truth(row: &MySqlRow, column: usize) -> bool {
    number(row, column) == Some(1)
}

/// A text in a text reply; `None` for null.
pub(super) fn text(row: &MySqlRow, column: usize) -> Option<String> {
    String::from_utf8(bytes(row, column)?).ok()
}

/// Bytes in a text reply; `None` for null.
pub(super) fn bytes(row: &MySqlRow, column: usize) -> Option<Vec<u8>> {
    // A message of several statements has replies in text, whose types the driver would check.
    row.try_get_unchecked::<Option<Vec<u8>>, _>(column)
        .ok()
        .flatten()
}
