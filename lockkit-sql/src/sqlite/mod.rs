//! SQLite: a file of this machine, whose single writer makes every statement atomic.

mod config;
mod driver;
mod open;
mod queries;

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::LockName;
use lockkit_core::contract::{Attempt, Grant, Release, Ticket};
use sqlx::SqliteConnection;

use self::driver::ERRORS;
use self::queries::Queries;
use crate::backend::SqlStore;
use crate::config::Options;
use crate::dialect::Steps;
use crate::driver::{Columns as _, Source, changed, rows, send, text};
use crate::error::Result;
use crate::guarded::Stored;
use crate::places;
use crate::pool::Pool;
use crate::queries::Common;
use crate::session::Session;
use crate::shares;
use crate::values::{Values, token};

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

    fn pool(&self) -> &Pool<sqlx::Sqlite> {
        &self.pool
    }

    fn common(&self) -> &Common {
        &self.queries.common
    }

    async fn open(source: Source<sqlx::Sqlite>, options: Options) -> Result<Arc<Self>> {
        let (pool, queries) = open::open(source, &options).await?;
        Ok(Arc::new(Self { pool, queries }))
    }

    fn active_session(&self) -> Option<&Session> {
        None
    }

    fn listen(self: &Arc<Self>) -> Result<(), &'static str> {
        Err("a file sends no notifications: its waiters poll")
    }

    async fn attempt(&self, ticket: &Ticket, session: i64) -> Result<Attempt> {
        if !places::has_waited(&self.queries.common.waiters, ticket)
            && let acquire = &self.queries.acquire
            && let replies = self
                .pool
                .step("attempt", acquire, &Values::of(ticket))
                .await?
            && let Some(row) = rows(&replies).next()
        {
            let token = row.number(0).and_then(token);
            let token = token.ok_or_else(|| ERRORS.unreadable("attempt"))?;
            return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
        }
        shares::attempt(self, ticket, session).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release> {
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

    async fn lock_row(
        self: &Arc<Self>,
        name: &LockName,
        transaction: &mut SqliteConnection,
    ) -> Result<bool> {
        let lock = self.queries.txlock.text(&Values::new().name(name));
        let lock = text(&lock);
        let replies = send::<sqlx::Sqlite>(transaction, "lock", lock).await?;
        Ok(rows(&replies).next().is_some())
    }
}
