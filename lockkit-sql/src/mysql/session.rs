//! Requests on connections of the pool, and what becomes of those that fail.

use lockkit_core::BackendError;

use super::kept::Message;
use super::message::{Answer, Unfinished};
use crate::SqlFault;
use crate::pool::{Pool, Taken, Use};

/// Sends a message on a connection of the pool. What came back as a conflict of transactions is sent
/// again: it was rolled back, and is nobody's fault.
pub(super) async fn send(
    pool: &Pool<sqlx::MySql>,
    operation: &'static str,
    by: Use,
    message: Message,
) -> Result<Vec<Answer>, BackendError> {
    let mut tries = 0;
    loop {
        let mut taken = pool.take(operation, by).await?;
        let (connection, way) = taken.parts();
        match message.send(connection, way).await {
            Ok(answers) => {
                taken.put_back();
                return Ok(answers);
            }
            Err(error) => {
                tries += 1;
                if is_conflict(&error) && tries < CONFLICTS {
                    taken.put_back();
                    continue;
                }
                return Err(failed(operation, taken, &error));
            }
        }
    }
}

/// What became of a request, and of its connection: after a statement that failed it can be used
/// again, but not after its end.
pub(super) fn failed(
    operation: &'static str,
    taken: Taken<'_, sqlx::MySql>,
    error: &Unfinished,
) -> BackendError {
    let told = error.told(operation);
    taken.failed(&error.error, &told);
    told
}

/// So often a conflict of transactions is answered by another try.
const CONFLICTS: u32 = 5;

/// A deadlock, or a row that changed under a snapshot of the application's isolation.
pub(super) fn is_conflict(error: &Unfinished) -> bool {
    let sqlx::Error::Database(error) = &error.error else {
        return false;
    };
    let error = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
    error.is_some_and(|error| matches!(error.number(), 1213 | 1020))
}

/// The server's number of an error.
pub(super) fn code(error: &BackendError) -> Option<&str> {
    let fault = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    fault.and_then(|fault: &SqlFault| fault.code())
}
