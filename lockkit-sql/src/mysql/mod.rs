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
use lockkit_core::contract::{Attempt, Grant, Release, Ticket};
use lockkit_core::store::lock;
use sqlx::MySqlConnection;

use self::driver::ERRORS;
use self::queries::Queries;
use crate::backend::SqlStore;
use crate::config::Options;
use crate::dialect::Steps;
use crate::driver::{Reply, Source, changed, send, text};
use crate::error::Result;
use crate::guarded::Stored;
use crate::places;
use crate::pool::Pool;
use crate::queries::Common;
use crate::session::{Connect as _, Session, start};
use crate::shares;
use crate::steps;
use crate::values::{Values, token};

pub(crate) use self::queries::ddl;

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
        let acquire = &self.queries.acquire;
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
        let why = "the server sends no notifications: its waiters poll";
        self.active_session().map(drop).ok_or(why)
    }

    async fn attempt(&self, ticket: &Ticket, session: i64) -> Result<Attempt> {
        if !places::has_waited(&self.queries.common.waiters, ticket)
            && let Some(grant) = self.acquire(ticket, session).await?
        {
            return Ok(Attempt::Granted(grant));
        }
        shares::attempt(self, ticket, session).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release> {
        let in_time = |replies: &[Reply<sqlx::MySql>]| {
            let reply = changed(replies)?;
            Some(reply.insert_id == IN_TIME)
        };
        steps::release(self, &self.queries.release, ticket, in_time).await
    }

    async fn lock_row(
        self: &Arc<Self>,
        name: &LockName,
        transaction: &mut MySqlConnection,
    ) -> Result<bool> {
        let values = Values::new().name(name);
        // Before the lock, which would lock the gap where there is no row.
        steps::make_row(self, &self.queries.make_row, name).await?;
        let lock = text(&self.queries.txlock.text(&values));
        let replies = send::<sqlx::MySql>(transaction, "lock", lock).await?;
        Ok(changed(&replies).is_some())
    }
}
