//! MySQL and MariaDB: rows that are locked for one statement each, and sessions.

mod config;
mod driver;
mod open;
mod queries;
mod session;

use std::collections::HashSet;
use std::convert::identity;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use lockkit_core::contract::{Attempt, Grant, Ticket};
use lockkit_core::store::lock;
use lockkit_core::{Capabilities, LockName};

use self::driver::ERRORS;
use self::queries::Queries;
use crate::backend::SqlStore;
use crate::config::Options;
use crate::dialect::{Steps, Store};
use crate::driver::{Reply, Source, changed};
use crate::error::Result;
use crate::guarded::Stored;
use crate::places;
use crate::pool::Pool;
use crate::queries::Common;
use crate::session::start;
use crate::shares;
use crate::values::{Values, token};

/// Keeps locks in a table of MySQL 8 or MariaDB 10.6, or later.
pub type MysqlStore = SqlStore<Mysql>;

/// `release.sql` returns it for a lease that had not ended.
const IN_TIME: u64 = 2;

/// The most names that are known to have a row.
const MOST_NAMES: usize = 65_536;

/// MySQL 8 and MariaDB.
#[derive(Debug)]
pub struct Mysql {
    queries: Queries,
    /// Names that have a row, for which a shorter message is enough. It can be forgotten at any time.
    with_row: Mutex<HashSet<LockName>>,
}

impl Mysql {
    fn remember(&self, name: &LockName) {
        let mut names = lock(&self.with_row);
        if names.len() >= MOST_NAMES {
            names.clear();
        }
        names.insert(name.clone());
    }
}

/// Takes the lock if it is free and no ticket waits.
async fn acquire(store: &Store<Mysql>, ticket: &Ticket, session: i64) -> Result<Option<Grant>> {
    let (acquire, own) = (&store.common.acquire, &store.own);
    let values = Values::of(ticket).number("session", session);
    let has_row = lock(&own.with_row).contains(&ticket.name);
    let replies = if has_row {
        store.pool.step("attempt", acquire, &values).await?
    } else {
        let insert = own.queries.acquire_new.text(&values);
        let message = [acquire.text(&values), insert].join("\n");
        store.pool.ask("attempt", &message).await?
    };
    let Some(reply) = changed(&replies) else {
        return Ok(None);
    };
    own.remember(&ticket.name);
    let token = i64::try_from(reply.insert_id).ok().and_then(token);
    let token = token.ok_or_else(|| ERRORS.unreadable("attempt"))?;
    Ok(Some(Grant::new(token, ticket.ttl)))
}

impl Stored for sqlx::MySql {
    type Dialect = Mysql;
}

#[async_trait]
impl Steps for Mysql {
    type Driver = sqlx::MySql;

    /// To lock a row that is not there would lock the gap.
    const ROW_FIRST: bool = true;

    async fn open(
        source: Source<sqlx::MySql>,
        options: &Options,
        rules: Capabilities,
    ) -> Result<(Pool<sqlx::MySql>, Common, Self)> {
        let pool = Pool::new(source, identity, options, options.prepare);
        let (common, queries) = open::find(&pool, options, rules).await?;
        let with_row = Mutex::default();
        Ok((pool, common, Self { queries, with_row }))
    }

    async fn start_session(store: &Arc<Store<Self>>, first: bool) -> Result<()> {
        start(store, first).await
    }

    async fn attempt(store: &Store<Self>, ticket: &Ticket, session: i64) -> Result<Attempt> {
        if !places::has_waited(&store.common.waiters, ticket)
            && let Some(grant) = acquire(store, ticket, session).await?
        {
            return Ok(Attempt::Granted(grant));
        }
        shares::attempt(store, ticket, session).await
    }

    fn in_time(replies: &[Reply<sqlx::MySql>]) -> Option<bool> {
        Some(changed(replies)?.insert_id == IN_TIME)
    }
}
