//! MySQL and MariaDB: rows that are locked for one statement each, and sessions.

mod config;
mod driver;
mod open;
mod queries;
mod session;

use std::collections::HashSet;
use std::convert::identity;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::LockName;
use lockkit_core::contract::{Attempt, Grant, Release, Ticket};
use lockkit_core::store::lock;
use sqlx::MySqlConnection;
use tokio::time::sleep;

use self::driver::ERRORS;
use self::queries::Queries;
use crate::backend::SqlStore;
use crate::config::Options;
use crate::dialect::Steps;
use crate::driver::{Columns as _, Source, changed, rows, send, text};
use crate::error::Result;
use crate::guarded::Stored;
use crate::places::{self, Seen};
use crate::pool::Pool;
use crate::queries::Common;
use crate::session::{Connect as _, Session, start};
use crate::steps;
use crate::turns;
use crate::values::{Values, micros, token};

pub(crate) use self::queries::ddl;

/// How long a lease lasts after the end of its session is known: the client learns of it in this time.
const WAIT_OUT: Duration = Duration::from_secs(1);

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

/// The row of a lock that was not granted or not released.
#[derive(Debug)]
struct Row {
    mine: bool,
    seen: Seen,
    /// Whether any ticket waits.
    waiting: bool,
    /// The session of the hold if it has ended, else 0.
    ended: i64,
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
    async fn acquire(
        &self,
        ticket: &Ticket,
        values: &Values<'_>,
        has_row: bool,
    ) -> Result<Option<Grant>> {
        let acquire = &self.queries.acquire;
        let replies = if has_row {
            self.pool.step("attempt", acquire, values).await?
        } else {
            let insert = self.queries.acquire_new.text(values);
            let message = [acquire.text(values), insert].join("\n");
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

    /// Shortens the lease of a hold whose session has ended.
    async fn end_with_session(&self, ticket: &Ticket, row: &mut Row) -> Result<()> {
        let wait = micros(WAIT_OUT);
        if row.ended != 0 && row.seen.left > wait {
            let values = Values::new().name(&ticket.name);
            let values = values.number("session", row.ended).number("wait", wait);
            let shorten = self.queries.session_ended.text(&values);
            self.pool.ask("attempt", &shorten).await?;
            row.seen.left = wait;
        }
        Ok(())
    }

    /// Reads the row of a lock; `None` if there is none.
    async fn inspect(&self, operation: &'static str, values: &Values<'_>) -> Result<Option<Row>> {
        let inspect = self.queries.inspect.text(values);
        let replies = self.pool.ask(operation, &inspect).await?;
        let Some(row) = rows(&replies).next() else {
            return Ok(None);
        };
        let ended = row.number(9).ok_or_else(|| ERRORS.unreadable(operation))?;
        Ok(Some(Row {
            mine: row.truth(0),
            seen: Seen::read(row),
            waiting: row.truth(8),
            ended,
        }))
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
        let values = Values::of(ticket).number("session", session);
        let mut has_row = lock(&self.with_row).contains(&ticket.name);
        // A ticket that has waited looks whether it is its turn.
        let mut looks = places::has_waited(&self.queries.common.waiters, ticket);
        let mut pauses = steps::pauses();
        loop {
            if !looks && let Some(grant) = self.acquire(ticket, &values, has_row).await? {
                return Ok(Attempt::Granted(grant));
            }
            looks = false;
            let row = self.inspect("attempt", &values).await?;
            has_row = row.is_some();
            if let Some(mut row) = row.filter(|row| !(row.mine && row.seen.left > 0)) {
                self.end_with_session(ticket, &mut row).await?;
                let found = turns::wait(self, ticket, session, &row.seen, row.waiting).await?;
                if let Some(attempt) = found {
                    return Ok(attempt);
                }
            }
            // Another transaction has the row locked, or has just deleted it.
            match pauses.next() {
                Some(pause) => sleep(pause).await,
                None => return Ok(Attempt::held()),
            }
        }
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release> {
        let values = Values::of(ticket);
        for _ in 0..2 {
            let release = &self.queries.release;
            let replies = self.pool.step("release", release, &values).await?;
            if let Some(reply) = changed(&replies) {
                return Ok(match reply.insert_id {
                    IN_TIME => Release::Released,
                    _ => Release::NotHeld,
                });
            }
            let row = self.inspect("release", &values).await?;
            if !row.is_some_and(|row| row.mine) {
                return Ok(Release::NotHeld);
            }
        }
        Err(ERRORS.skipped("release"))
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
