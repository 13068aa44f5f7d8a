//! The store's connections to the server, and requests on them.

use std::sync::atomic::{AtomicBool, Ordering};

use lockkit_core::BackendError;
use sqlx::MySqlConnection;

use super::connection::{Failed, Reply, execute, send};
use super::pin::Pins;
use super::remembered::Remembered;
use super::statements::{Args, SPELLING, Statements, Step};
use crate::SqlFault;
use crate::pool::{Pool, Use};

/// The first message on a connection. Without autocommit, which a server may have turned off, a row would
/// stay locked.
const SETTINGS: &str = "SET autocommit = 1;";

/// A conflict of transactions is retried this often.
const CONFLICTS: u32 = 5;

/// MySQL 8 and MariaDB.
#[derive(Debug)]
pub struct Mysql {
    pub(super) pool: Pool<sqlx::MySql>,
    pub(super) statements: Statements,
    /// Whether connections prepare statements.
    pub(super) prepares: AtomicBool,
    pub(super) pins: Option<Pins>,
    /// Names that have a row, for which a shorter message is enough.
    pub(super) names: Remembered<()>,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
enum Request<'a> {
    Text(&'a str),
    Prepared(&'a Step, Args<'a>),
}

impl Mysql {
    /// Sends a message on a connection of the pool.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        by: Use,
        text: &str,
    ) -> Result<Vec<Reply>, BackendError> {
        self.send(operation, by, Request::Text(text)).await
    }

    /// Sends a step, prepared unless the server refuses that.
    pub(super) async fn ask_step(
        &self,
        operation: &'static str,
        step: &Step,
        args: Args<'_>,
    ) -> Result<Vec<Reply>, BackendError> {
        if self.prepares.load(Ordering::Relaxed) {
            let request = Request::Prepared(step, args);
            match self.send(operation, Use::Step, request).await {
                Err(error) if is_unprepared(&error) => {
                    self.prepares.store(false, Ordering::Relaxed)
                }
                result => return result,
            }
        }
        let text = step.text.with(&args.values(), SPELLING);
        self.ask(operation, Use::Step, &text).await
    }

    /// Sends a request, again after a conflict of transactions, which was rolled back.
    async fn send(
        &self,
        operation: &'static str,
        by: Use,
        request: Request<'_>,
    ) -> Result<Vec<Reply>, BackendError> {
        let mut tries = 0;
        loop {
            let mut taken = self.pool.take(operation, by).await?;
            let (connection, is_set) = taken.parts();
            match request.send(connection, is_set).await {
                Ok(replies) => {
                    taken.put_back();
                    return Ok(replies);
                }
                Err(error) if error.is_conflict() && tries < CONFLICTS => {
                    tries += 1;
                    taken.put_back();
                }
                Err(error) => {
                    let report = error.report(operation);
                    taken.failed(&error.error, &report);
                    return Err(report);
                }
            }
        }
    }
}

impl Request<'_> {
    async fn send(
        self,
        connection: &mut MySqlConnection,
        is_set: &mut bool,
    ) -> Result<Vec<Reply>, Failed> {
        if !*is_set {
            send(connection, SETTINGS).await?;
            *is_set = true;
        }
        match self {
            Self::Text(text) => send(connection, text).await,
            Self::Prepared(step, args) => {
                Ok(vec![execute(connection, &step.prepared, args).await?])
            }
        }
    }
}

/// The server does not know the statement, prepares no more of them, or none of this kind. It has not
/// executed it.
fn is_unprepared(error: &BackendError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    let code = source.and_then(|fault: &SqlFault| fault.code());
    matches!(code, Some("1243" | "1295" | "1461" | "1615"))
}
