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
use lockkit_core::LockName;
use lockkit_core::contract::{Attempt, Grant, Ticket};
use lockkit_core::store::lock;

use self::driver::ERRORS;
use self::queries::Queries;
use crate::backend::SqlStore;
use crate::config::Options;
use crate::dialect::Steps;
use crate::driver::{Reply, Source, changed};
use crate::error::Result;
use crate::guarded::Stored;
use crate::places;
use crate::pool::Pool;
use crate::queries::Common;
use crate::session::{Connect as _, Session, start};
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
    pool: Pool<sqlx::MySql>,
    queries: Queries,
    session: Session,
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

    /// Takes the lock if it is free and no ticket waits.
    async fn acquire(&self, ticket: &Ticket, session: i64) -> Result<Option<Grant>> {
        let values = Values::of(ticket).number("session", session);
        let acquire = &self.queries.common.acquire;
        let has_row = lock(&self.with_row).contains(&ticket.name);
        let replies = if has_row {
            self.pool.step("attempt", acquire, &values).await?
        } else {
            let insert = self.queries.acquire_new.text(&values);
            let message = [acquire.text(&values), insert].join("\n");
            self.pool.ask("attempt", &message).await?
        };
        let Some(reply) = changed(&replies) else {
            return Ok(None);
        };
        self.remember(&ticket.name);
        let token = i64::try_from(reply.insert_id).ok().and_then(token);
        let token = token.ok_or_else(|| ERRORS.unreadable("attempt"))?;
        Ok(Some(Grant::new(token, ticket.ttl)))
    }
}

impl Stored for sqlx::MySql {
    type Dialect = Mysql;
}

#[async_trait]
impl Steps for Mysql {
    type Driver = sqlx::MySql;

    /// To lock a row that is not there would lock the gap.
    const ROW_FIRST: bool = true;

    fn pool(&self) -> &Pool<sqlx::MySql> {
        &self.pool
    }

    fn common(&self) -> &Common {
        &self.queries.common
    }

    async fn open(source: Source<sqlx::MySql>, options: Options) -> Result<Arc<Self>> {
        let pool = Pool::new(source, identity, &options, options.prepare);
        let queries = open::find(&pool, &options).await?;
        let waiters = Arc::clone(&queries.common.waiters);
        let this = Arc::new(Self {
            pool,
            queries,
            session: Session::new(ERRORS, options.pin, waiters),
            with_row: Mutex::default(),
        });
        if options.pin {
            start(&this, Some(this.open_session().await?));
        }
        Ok(this)
    }

    fn active_session(&self) -> Option<&Session> {
        self.session.pins.then_some(&self.session)
    }

    fn listen(self: &Arc<Self>) -> Result<(), &'static str> {
        let session = self.active_session();
        session.ok_or("the server sends no notifications: its waiters poll")?;
        start(self, None);
        Ok(())
    }

    async fn attempt(&self, ticket: &Ticket, session: i64) -> Result<Attempt> {
        if !places::has_waited(&self.queries.common.waiters, ticket)
            && let Some(grant) = self.acquire(ticket, session).await?
        {
            return Ok(Attempt::Granted(grant));
        }
        shares::attempt(self, ticket, session).await
    }

    fn in_time(replies: &[Reply<sqlx::MySql>]) -> Option<bool> {
        Some(changed(replies)?.insert_id == IN_TIME)
    }

    fn taken(replies: &[Reply<sqlx::MySql>]) -> Result<Option<bool>> {
        Ok(Some(changed(replies).is_some()))
    }
}
