//! The session of a pin: a connection that holds a user lock.

use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{BackendError, Outcome};
use sqlx::MySqlConnection;
use tokio::time::{sleep, timeout};

use super::connection::{number, send, truth};
use super::error::ERRORS;
use super::pin::Session;
use super::server::Mysql;
use super::statements::SPELLING;
use crate::error::Problem;
use crate::pool::Use;
use crate::statement::Values;

/// How often the client proves its session, so that it learns of its end.
const PROVE_EVERY: Duration = Duration::from_millis(400);

/// How long a lease lasts after the end of its session is known: the client learns of it in this time.
pub(super) const WAIT_OUT: Duration = Duration::from_secs(1);

/// A session that returns no reply for this long is given up.
const SILENCE: Duration = Duration::from_secs(10);

/// The connection of a session, and the key of its user lock.
pub(super) struct UserLock {
    connection: MySqlConnection,
    key: i64,
}

impl Mysql {
    /// Opens a session, and asks on another connection whether the server itself has it.
    pub(super) async fn open_session(&self) -> Result<UserLock, BackendError> {
        const OPERATION: &str = "open";
        let mut connection = self.pool.connection(OPERATION).await?;
        let values = Values::new().number("random", i64::from(fastrand::u32(1..)));
        let open = self.statements.session.with(&values, SPELLING);
        let opened = timeout(SILENCE, send(&mut connection, &open)).await;
        let opened =
            opened.map_err(|_| BackendError::timeout(ERRORS.backend, OPERATION, SILENCE))?;
        let opened = opened.map_err(|error| error.report(OPERATION))?;
        let row = opened.last().and_then(|reply| reply.rows.first());
        let numbers = row.map(|row| [number(row, 0), number(row, 1), number(row, 2)]);
        let Some([Some(key), Some(1), Some(id)]) = numbers else {
            return Err(ERRORS.unreadable(OPERATION));
        };
        let seen = format!("SELECT IS_USED_LOCK('lockkit_{key}') = {id};");
        let seen = self.ask(OPERATION, Use::Step, &seen).await?;
        let seen = seen.first().and_then(|reply| reply.rows.first());
        if seen.is_some_and(|row| truth(row, 0)) {
            return Ok(UserLock { connection, key });
        }
        let text = "`pin=true` needs a connection that keeps its session on the server, and a proxy in \
                    between does not: connect to the server itself";
        Err(ERRORS.fault(OPERATION, Problem::Refused, Outcome::Rejected, text))
    }
}

#[async_trait]
impl Session for UserLock {
    fn key(&self) -> i64 {
        self.key
    }

    async fn ended(&mut self) {
        // A server that takes no writes is no primary any more.
        let prove = format!(
            "SELECT IS_USED_LOCK('lockkit_{}') = CONNECTION_ID() AND NOT @@read_only;",
            self.key
        );
        loop {
            sleep(PROVE_EVERY).await;
            let Ok(Ok(replies)) = timeout(SILENCE, send(&mut self.connection, &prove)).await else {
                return;
            };
            let row = replies.first().and_then(|reply| reply.rows.first());
            if !row.is_some_and(|row| truth(row, 0)) {
                return;
            }
        }
    }
}
