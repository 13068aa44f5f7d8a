//! Messages to the server: any number of statements in one, each with an answer of its own.

use futures_util::TryStreamExt as _;
use lockkit_core::BackendError;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Either, MySqlConnection, Row as _};

use super::error::ERRORS;
use crate::error::{Phase, unclear};

/// What one statement answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// How many rows it found to change, whether or not they were so before.
    pub(super) changed: u64,
    /// What `LAST_INSERT_ID(..)` was given in it.
    pub(super) insert_id: u64,
    pub(super) rows: Vec<MySqlRow>,
}

/// A message whose end was not reached.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) error: sqlx::Error,
    /// Whether a statement before the one that failed has changed rows.
    changed: bool,
}

impl From<sqlx::Error> for Unfinished {
    fn from(error: sqlx::Error) -> Self {
        Self {
            error,
            changed: false,
        }
    }
}

impl Unfinished {
    /// What became of the whole message.
    pub(super) fn told(&self, operation: &'static str) -> BackendError {
        let told = ERRORS.of(operation, Phase::Asking, &self.error);
        if self.changed { unclear(told) } else { told }
    }
}

/// Sends a message and reads all its answers, also those that nobody asks for: the connection can be
/// used again only then.
pub(super) async fn ask(
    connection: &mut MySqlConnection,
    message: &str,
) -> Result<Vec<Answer>, Unfinished> {
    let mut answers = Vec::new();
    match read(connection, message, &mut answers).await {
        Ok(()) => Ok(answers),
        Err(error) => Err(Unfinished {
            error,
            changed: answers.iter().any(|answer| answer.changed > 0),
        }),
    }
}

async fn read(
    connection: &mut MySqlConnection,
    message: &str,
    answers: &mut Vec<Answer>,
) -> Result<(), sqlx::Error> {
    let mut rows = Vec::new();
    let query = sqlx::raw_sql(AssertSqlSafe(message.to_owned()));
    let mut stream = query.fetch_many(connection);
    while let Some(item) = stream.try_next().await? {
        match item {
            Either::Right(row) => rows.push(row),
            Either::Left(done) => answers.push(Answer {
                changed: done.rows_affected(),
                insert_id: done.last_insert_id(),
                rows: std::mem::take(&mut rows),
            }),
        }
    }
    Ok(())
}

/// A number of an answer in text, whatever its type.
pub(super) fn number(row: &MySqlRow, column: usize) -> Option<i64> {
    text(row, column)?.parse().ok()
}

/// A truth of an answer in text.
pub(super) fn truth(row: &MySqlRow, column: usize) -> bool {
    number(row, column) == Some(1)
}

/// A text of an answer; `None` for nothing.
pub(super) fn text(row: &MySqlRow, column: usize) -> Option<String> {
    String::from_utf8(bytes(row, column)?).ok()
}

/// Bytes of an answer; `None` for nothing.
pub(super) fn bytes(row: &MySqlRow, column: usize) -> Option<Vec<u8>> {
    // The protocol of messages sends everything as text, and the type says how to read it; bytes can
    // be read from all of them.
    row.try_get_unchecked::<Option<Vec<u8>>, _>(column)
        .ok()
        .flatten()
}
