//! MySQL and MariaDB: rows that are locked for one statement each.

mod acquire;
mod admin;
mod config;
mod connection;
mod error;
mod guard;
mod open;
mod pin;
mod release;
mod remembered;
mod renew;
mod server;
mod session;
mod statements;

use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, LockName, Outcome, Queueing};

use self::error::ERRORS;
use crate::backend::SqlStore;
use crate::config::Options;
use crate::dialect::{Counts, Source, Steps, Which};
use crate::error::Problem;
use crate::row::Row;

pub use self::server::Mysql;
pub(crate) use self::statements::ddl;

/// Keeps locks in a table of MySQL 8 or MariaDB 10.6, or later.
pub type MysqlStore = SqlStore<Mysql>;

#[async_trait]
impl Steps for Mysql {
    type Driver = sqlx::MySql;

    const BACKEND: &'static str = ERRORS.backend;

    fn capabilities(options: &Options) -> Capabilities {
        Capabilities::new()
            .with_queueing(Queueing::Barging)
            .with_poll(options.poll)
            .with_recheck(options.poll.max)
            .with_tells_loss(options.pin)
    }

    async fn open(source: Source<sqlx::MySql>, options: Options) -> Result<Self, BackendError> {
        Self::connect(source, options).await
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.acquire(ticket).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        match &self.pins {
            Some(pins) => Ok(pins.watch(ticket.holder, None)),
            None => {
                let text = "the server sends no notifications: its waiters poll";
                Err(ERRORS.fault("watch", Problem::Refused, Outcome::Rejected, text))
            }
        }
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        self.renew_all(tickets).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.release_hold(ticket).await
    }

    async fn look(&self, which: Which<'_>) -> Result<Vec<LockState>, BackendError> {
        let rows = self.rows("inspect", which).await?;
        Ok(rows.iter().filter_map(Row::state).collect())
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.break_hold(name).await
    }

    async fn purge(&self, unused_for: Duration) -> Result<u64, BackendError> {
        self.delete_unused(unused_for).await
    }

    fn counts(&self) -> Counts {
        Counts {
            idle: self.pool.idle(),
            pins: self.pins.as_ref().map_or(0, pin::Pins::count),
            ..Counts::default()
        }
    }
}
