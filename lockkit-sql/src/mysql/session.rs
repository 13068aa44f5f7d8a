//! The session of a client: a connection that holds a user lock.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{MySql, MySqlConnection};
use tokio::time::{sleep, timeout};

use super::Mysql;
use super::driver::ERRORS;
use crate::dialect::Store;
use crate::driver::{Columns as _, rows, send, text};
use crate::error::{Result, at};
use crate::session::{Connect, SILENCE, Session};
use crate::values::Values;

/// How often the client proves its session, so that it learns of its end.
const PROVE_EVERY: Duration = Duration::from_millis(400);

#[async_trait]
impl Connect for Store<Mysql> {
    /// With the key of its user lock.
    type Connection = (MySqlConnection, i64);

    fn session(&self) -> &Session {
        &self.session
    }

    /// Opens a session, and asks on another connection whether the server itself has it.
    async fn open_session(&self) -> Result<(Self::Connection, i64)> {
        self.pool.may_open_session().await?;
        let mut connection = self.pool.connect("open").await?;
        let values = Values::new().number("random", i64::from(fastrand::u32(1..)));
        let begin = text(&self.own.queries.session.text(&values));
        let begun = send::<MySql>(&mut connection, "open", begin);
        let begun = timeout(self.pool.connect_timeout, begun).await;
        let begun = begun.map_err(|_| self.pool.silent())?;
        let begun = begun.map_err(|error| at(&self.pool.address(), error))?;
        let row = rows(&begun).last();
        let numbers = row.map(|row| [0, 1, 2].map(|column| row.number(column)));
        let Some([Some(key), Some(1), Some(id)]) = numbers else {
            return Err(ERRORS.unreadable("open"));
        };
        let seen = format!("SELECT IS_USED_LOCK('lockkit_{key}') = {id};");
        let seen = self.pool.ask_to_open(&seen).await?;
        if rows(&seen).any(|row| row.truth(0)) {
            return Ok(((connection, key), key));
        }
        let text = "`pin=true` needs a connection that keeps its session on the server, and a proxy in \
                    between does not: connect to the server itself";
        self.pool.close_idle();
        Err(at(&self.pool.address(), self.session.elsewhere(text)))
    }

    async fn ended(&self, (connection, key): &mut Self::Connection) {
        // A server that is read-only is no primary any more.
        let prove =
            format!("SELECT IS_USED_LOCK('lockkit_{key}') = CONNECTION_ID() AND NOT @@read_only;");
        loop {
            sleep(PROVE_EVERY).await;
            let prove = text(&prove);
            let Ok(Ok(replies)) = timeout(SILENCE, send::<MySql>(connection, "open", prove)).await
            else {
                return;
            };
            if !rows(&replies).any(|row| row.truth(0)) {
                return;
            }
        }
    }
}
