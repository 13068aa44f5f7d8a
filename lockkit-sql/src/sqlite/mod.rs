//! SQLite: a file of this machine, whose single writer makes every statement atomic.

mod config;
mod driver;
mod open;
mod queries;

use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{Attempt, Grant, LockState, Release, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, LockName};
use sqlx::SqliteConnection;

use self::driver::ERRORS;
use self::queries::Queries;
use crate::backend::SqlStore;
use crate::config::Options;
use crate::dialect::{Common, Counts, Steps};
use crate::driver::{Driver as _, Message, Source, changed, rows, send};
use crate::error::Problem;
use crate::guarded::Stored;
use crate::pool::{Pool, Use};
use crate::steps;
use crate::template::Values;

pub(crate) use self::queries::ddl;

/// Keeps locks in a file of SQLite, for the processes of one machine.
pub type SqliteStore = SqlStore<Sqlite>;

/// SQLite: a file, for the processes of one machine.
#[derive(Debug)]
pub struct Sqlite {
    pool: Pool<sqlx::Sqlite>,
    queries: Queries,
}

impl Stored for sqlx::Sqlite {
    type Dialect = Sqlite;
}

#[async_trait]
impl Steps for Sqlite {
    type Driver = sqlx::Sqlite;

    /// One statement keeps others from the file for about a millisecond.
    const BATCH: usize = 200;

    /// The file has one connection.
    const RENEWALS: Use = Use::Step;

    fn pool(&self) -> &Pool<sqlx::Sqlite> {
        &self.pool
    }

    fn common(&self) -> &Common {
        &self.queries.common
    }

    fn capabilities(options: &Options) -> Capabilities {
        Capabilities::new()
            .with_poll(options.poll)
            .with_recheck(options.poll.max)
    }

    async fn open(source: Source<sqlx::Sqlite>, options: Options) -> Result<Self, BackendError> {
        let (pool, queries) = open::open(source, options).await?;
        Ok(Self { pool, queries })
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let values = Values::of(ticket);
        let acquire = &self.queries.acquire;
        let replies = self.pool.step("attempt", acquire, &values).await?;
        if let Some(row) = rows(&replies).next() {
            let token = sqlx::Sqlite::number(row, 0).and_then(steps::token);
            let token = token.ok_or_else(|| ERRORS.unreadable("attempt"))?;
            return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
        }
        let inspect = &self.queries.inspect;
        let replies = self.pool.step("attempt", inspect, &values).await?;
        let left = rows(&replies)
            .next()
            .and_then(|row| sqlx::Sqlite::number(row, 0));
        let left = left.and_then(|left| u64::try_from(left).ok());
        let left = Duration::from_micros(left.unwrap_or(0));
        Ok(Attempt::held_for(Some(left)))
    }

    async fn watch(&self, _ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        let text = "a file sends no notifications: its waiters poll";
        Err(ERRORS.rejected("watch", Problem::Refused, text))
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let values = Values::of(ticket);
        let release = &self.queries.release;
        let replies = self.pool.step("release", release, &values).await?;
        if changed(&replies).is_some() {
            return Ok(Release::Released);
        }
        let late = &self.queries.release_late;
        self.pool.step("release", late, &values).await?;
        Ok(Release::NotHeld)
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let Queries {
            common, break_lock, ..
        } = &self.queries;
        steps::break_lock(&self.pool, &common.list, break_lock, name).await
    }

    async fn lock_row(
        &self,
        name: &LockName,
        transaction: &mut SqliteConnection,
    ) -> Result<bool, BackendError> {
        let lock = self.queries.txlock.text(&Values::new().name(name));
        let lock = Message::<sqlx::Sqlite>::text(&lock);
        let replies = send(transaction, "lock", lock).await?;
        Ok(rows(&replies).next().is_some())
    }

    fn counts(&self) -> Counts {
        Counts {
            idle: self.pool.idle(),
            ..Counts::default()
        }
    }
}
