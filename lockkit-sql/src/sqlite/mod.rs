//! SQLite: a file of this machine, whose single writer makes every statement atomic.

mod config;
mod driver;
mod open;
mod queries;

use async_trait::async_trait;
use lockkit_core::Capabilities;
use lockkit_core::contract::{Attempt, Grant, Ticket};

use self::driver::ERRORS;
use crate::backend::SqlStore;
use crate::config::Options;
use crate::dialect::{Steps, Store};
use crate::driver::{Columns as _, Reply, Source, changed, rows};
use crate::error::Result;
use crate::guarded::Stored;
use crate::places;
use crate::pool::Pool;
use crate::queries::Common;
use crate::shares;
use crate::values::{Values, token};

/// Keeps locks in a file of SQLite, for the processes of one machine.
pub type SqliteStore = SqlStore<Sqlite>;

/// SQLite: a file, for the processes of one machine.
#[derive(Debug)]
pub struct Sqlite {
    /// Only this crate makes one.
    _sealed: (),
}

impl Stored for sqlx::Sqlite {
    type Dialect = Sqlite;
}

#[async_trait]
impl Steps for Sqlite {
    type Driver = sqlx::Sqlite;

    /// One statement keeps others from the file for about a millisecond.
    const BATCH: usize = 200;

    async fn open(
        source: Source<sqlx::Sqlite>,
        options: &Options,
        rules: Capabilities,
    ) -> Result<(Pool<sqlx::Sqlite>, Common, Self)> {
        let (pool, common) = open::open(source, options, rules).await?;
        Ok((pool, common, Self { _sealed: () }))
    }

    async fn attempt(store: &Store<Self>, ticket: &Ticket, session: i64) -> Result<Attempt> {
        let (pool, common) = (&store.pool, &store.common);
        if !places::has_waited(&common.waiters, ticket)
            && let values = Values::of(ticket)
            && let replies = pool.step("attempt", &common.acquire, &values).await?
            && let Some(row) = rows(&replies).next()
        {
            let token = row.number(0).and_then(token);
            let token = token.ok_or_else(|| ERRORS.unreadable("attempt"))?;
            return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
        }
        shares::attempt(store, ticket, session).await
    }

    fn in_time(replies: &[Reply<sqlx::Sqlite>]) -> Option<bool> {
        changed(replies).map(|_| true)
    }
}
