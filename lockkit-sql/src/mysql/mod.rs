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
use lockkit_core::contract::{Attempt, Grant, LockState, Release, Ticket, Watch};
use lockkit_core::store::lock;
use lockkit_core::{BackendError, Capabilities, LockName, Queueing};
use sqlx::MySqlConnection;
use tokio::time::sleep;

use self::driver::ERRORS;
use self::queries::Queries;
use self::session::{UserLock, WAIT_OUT};
use crate::backend::SqlStore;
use crate::config::Options;
use crate::dialect::{Common, Counts, Steps};
use crate::driver::{Driver as _, Message, Source, changed, rows, send};
use crate::error::Problem;
use crate::guarded::Stored;
use crate::pool::{Pool, Use};
use crate::session::{Session, begin};
use crate::steps;
use crate::template::{Values, micros};

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
    pool: Arc<Pool<sqlx::MySql>>,
    queries: Arc<Queries>,
    /// The session of the client, if holds end with one.
    pin: Option<Arc<UserLock>>,
    /// Names that have a row, for which a shorter message is enough. It can be forgotten at any time.
    with_row: Mutex<HashSet<LockName>>,
}

/// The row of a lock that was not granted or not released.
#[derive(Debug)]
struct Seen {
    mine: bool,
    held: bool,
    left: i64,
    /// The session of the hold if it has ended, else 0.
    ended: i64,
}

impl Mysql {
    async fn acquire(&self, ticket: &Ticket, session: i64) -> Result<Attempt, BackendError> {
        let values = Values::of(ticket).number("session", session);
        let mut has_row = lock(&self.with_row).contains(&ticket.name);
        let mut pauses = steps::pauses();
        loop {
            let acquire = &self.queries.acquire;
            let replies = if has_row {
                self.pool.step("attempt", acquire, &values).await?
            } else {
                let insert = self.queries.acquire_new.text(&values);
                let message = [acquire.text(&values), insert].join("\n");
                self.pool.ask("attempt", Use::Step, &message).await?
            };
            if let Some(reply) = changed(&replies) {
                self.remember(&ticket.name);
                let token = i64::try_from(reply.insert_id).ok().and_then(steps::token);
                let token = token.ok_or_else(|| ERRORS.unreadable("attempt"))?;
                return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
            }
            let seen = self.inspect("attempt", &values).await?;
            has_row = seen.is_some();
            if let Some(seen) = seen.filter(|seen| !seen.is_free()) {
                return self.held(ticket, &seen).await;
            }
            // Another transaction has the row locked, or has just deleted it.
            match pauses.next() {
                Some(pause) => sleep(pause).await,
                None => return Ok(Attempt::held()),
            }
        }
    }

    fn remember(&self, name: &LockName) {
        let mut names = lock(&self.with_row);
        if names.contains(name) {
            return;
        }
        if names.len() >= MOST_NAMES {
            names.clear();
        }
        names.insert(name.clone());
    }

    /// Shortens the lease of a hold whose session has ended.
    async fn held(&self, ticket: &Ticket, seen: &Seen) -> Result<Attempt, BackendError> {
        let wait = micros(WAIT_OUT);
        let mut left = seen.left;
        if seen.ended != 0 && left > wait {
            let values = Values::new().name(&ticket.name);
            let values = values.number("session", seen.ended).number("wait", wait);
            let shorten = self.queries.session_ended.text(&values);
            self.pool.ask("attempt", Use::Step, &shorten).await?;
            left = wait;
        }
        let left = u64::try_from(left).ok().map(Duration::from_micros);
        Ok(Attempt::held_for(left))
    }

    /// Reads the row of a lock; `None` if there is none.
    async fn inspect(
        &self,
        operation: &'static str,
        values: &Values<'_>,
    ) -> Result<Option<Seen>, BackendError> {
        let inspect = self.queries.inspect.text(values);
        let replies = self.pool.ask(operation, Use::Step, &inspect).await?;
        let Some(row) = rows(&replies).next() else {
            return Ok(None);
        };
        let [mine, held] = [0, 1].map(|column| sqlx::MySql::truth(row, column));
        let [Some(left), Some(ended)] = [2, 3].map(|column| sqlx::MySql::number(row, column))
        else {
            return Err(ERRORS.unreadable(operation));
        };
        Ok(Some(Seen {
            mine,
            held,
            left,
            ended,
        }))
    }
}

impl Seen {
    const fn is_free(&self) -> bool {
        !self.held || self.mine || self.left <= 0
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

    fn capabilities(options: &Options) -> Capabilities {
        Capabilities::new()
            .with_queueing(Queueing::Barging)
            .with_poll(options.poll)
            .with_recheck(options.poll.max)
            .with_tells_loss(options.pin)
    }

    async fn open(source: Source<sqlx::MySql>, options: Options) -> Result<Self, BackendError> {
        let pool = Arc::new(Pool::new(source, identity, &options, options.prepare));
        let queries = Arc::new(open::find(&pool, &options).await?);
        let mut pin = None;
        if options.pin {
            let session = UserLock {
                session: Session::new(ERRORS),
                pool: Arc::clone(&pool),
                queries: Arc::clone(&queries),
            };
            begin(pin.insert(Arc::new(session))).await?;
        }
        Ok(Self {
            pool,
            queries,
            pin,
            with_row: Mutex::default(),
        })
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let Some(UserLock { session, .. }) = self.pin.as_deref() else {
            return self.acquire(ticket, 0).await;
        };
        let key = session.key().await?;
        let acquire = self.acquire(ticket, key);
        session.attempt(ticket, key, acquire).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        let Some(pin) = &self.pin else {
            let text = "the server sends no notifications: its waiters poll";
            return Err(ERRORS.rejected("watch", Problem::Refused, text));
        };
        Ok(Box::new(pin.session.waiters.watch(ticket)))
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        if let Some(pin) = &self.pin {
            pin.session.waiters.forget(ticket.holder);
        }
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
            let seen = self.inspect("release", &values).await?;
            if !seen.is_some_and(|seen| seen.mine) {
                return Ok(Release::NotHeld);
            }
        }
        Err(ERRORS.skipped("release"))
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let Queries {
            common, break_lock, ..
        } = &*self.queries;
        steps::break_lock(&self.pool, &common.list, break_lock, name).await
    }

    async fn lock_row(
        &self,
        name: &LockName,
        transaction: &mut MySqlConnection,
    ) -> Result<bool, BackendError> {
        let values = Values::new().name(name);
        // On a connection of the store: others would wait for the end of a transaction that has inserted
        // the row. And before the lock, which would lock the gap where there is no row.
        let make = self.queries.make_row.text(&values);
        self.pool.ask("lock", Use::Step, &make).await?;
        let lock = Message::<sqlx::MySql>::text(&self.queries.txlock.text(&values));
        let replies = send(transaction, "lock", lock).await?;
        Ok(changed(&replies).is_some())
    }

    fn counts(&self) -> Counts {
        let session = self.pin.as_deref().map(|pin| &pin.session);
        Counts {
            tickets: session.map_or(0, |session| session.waiters.len()),
            pins: session.map_or(0, |session| session.holds()),
            idle: self.pool.idle(),
        }
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        if let Some(pin) = &self.pin {
            pin.session.close();
        }
    }
}
