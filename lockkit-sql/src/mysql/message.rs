//! Messages to the server: any number of statements in one, each with an answer of its own.

use futures_util::TryStreamExt as _;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Either, MySqlConnection, Row as _};

/// What one statement answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// How many rows it found to change, whether or not they were so before.
    pub(super) changed: u64,
    /// What `LAST_INSERT_ID(..)` was given in it.
    pub(super) insert_id: u64,
    pub(super) rows: Vec<MySqlRow>,
}

/// Sends a message and reads all its answers, also those that nobody asks for: the connection can be
/// used again only then.
pub(super) async fn ask(
    connection: &mut MySqlConnection,
    message: &str,
) -> Result<Vec<Answer>, sqlx::Error> {
    let mut answers = Vec::new();
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
    Ok(answers)
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
