//! Requests to the server: text, or a statement that the session keeps prepared.

use std::sync::Arc;

use lockkit_core::BackendError;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{AssertSqlSafe, Executor, PgConnection, Postgres as Driver};

use super::error::{is_conflict, is_unprepared, of};
use crate::pool::{Pool, Use};

/// What is sent.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// One or more statements with their values.
    Text(String),
    /// A statement that the session keeps prepared, and its values.
    Prepared(Arc<str>, PgArguments),
}

impl Message {
    pub(super) async fn send(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        match self {
            Self::Text(text) => send(connection, text.clone()).await,
            Self::Prepared(text, values) => {
                let query = sqlx::query_with(AssertSqlSafe(Arc::clone(text)), values.clone());
                query.fetch_all(connection).await
            }
        }
    }
}

/// Sends one message of one or more statements, and reads all their rows.
///
/// It goes as a simple query: nothing stays prepared in a session that a pooler may give to another
/// client.
pub(super) async fn send<'c, E>(executor: E, text: String) -> Result<Vec<PgRow>, sqlx::Error>
where
    E: Executor<'c, Database = Driver>,
{
    sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(executor).await
}

/// Sends one message on a connection that is closed if it does not answer to the end. A conflict of
/// transactions, which was rolled back, is sent again.
pub(super) async fn ask(
    pool: &Pool<sqlx::Postgres>,
    operation: &'static str,
    by: Use,
    message: Message,
) -> Result<Vec<PgRow>, BackendError> {
    let mut conflicts = 0;
    loop {
        let mut taken = pool.take(operation, by).await?;
        let error = match message.send(taken.connection()).await {
            Ok(rows) => {
                taken.put_back();
                return Ok(rows);
            }
            Err(error) => error,
        };
        let repeat = is_conflict(&error) && conflicts < 3;
        let told = of(operation, &error);
        if is_unprepared(&told) {
            // The driver believes that the session knows it.
            drop(taken);
        } else {
            taken.failed(&error, &told);
        }
        if !repeat {
            return Err(told);
        }
        conflicts += 1;
    }
}
