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
use lockkit_core::contract::{Attempt, Grant, Release, Ticket};
use lockkit_core::store::lock;
use lockkit_core::{BackendError, Capabilities, LockName};
use sqlx::MySqlConnection;
use tokio::time::sleep;

use self::driver::ERRORS;
use self::queries::Queries;
use crate::backend::SqlStore;
use crate::config::Options;
use crate::dialect::Steps;
use crate::driver::{Columns as _, Source, changed, rows, send, text};
use crate::guarded::Stored;
use crate::pool::Pool;
use crate::queries::Common;
use crate::session::{Connect as _, Session, start};
use crate::shares;
use crate::steps;
use crate::template::{Values, micros};

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
struct Seen {
    mine: bool,
    held: bool,
    left: i64,
    /// The session of the hold if it has ended, else 0.
    ended: i64,
    /// Whether others hold together.
    shared: bool,
}

impl Mysql {
    fn remember(&self, name: &LockName) {
        let mut names = lock(&self.with_row);
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
            self.pool.ask("attempt", &shorten).await?;
            left = wait;
        }
        if seen.shared {
            shares::writer_waits(self, ticket).await?;
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
        let replies = self.pool.ask(operation, &inspect).await?;
        let Some(row) = rows(&replies).next() else {
            return Ok(None);
        };
        let [mine, held, shared] = [0, 1, 4].map(|column| row.truth(column));
        let [Some(left), Some(ended)] = [2, 3].map(|column| row.number(column)) else {
            return Err(ERRORS.unreadable(operation));
        };
        Ok(Some(Seen {
            mine,
            held,
            left,
            ended,
            shared,
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
        options.capabilities()
    }

    async fn open(
        source: Source<sqlx::MySql>,
        options: Options,
    ) -> Result<Arc<Self>, BackendError> {
        let pool = Pool::new(source, identity, &options, options.prepare);
        let queries = open::find(&pool, &options, Self::capabilities(&options)).await?;
        let this = Arc::new(Self {
            pool,
            queries,
            session: Session::new(ERRORS, options.pin),
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

    fn listen(self: &Arc<Self>) -> Result<&Session, &'static str> {
        let why = "the server sends no notifications: its waiters poll";
        self.active_session().ok_or(why)
    }

    async fn attempt(&self, ticket: &Ticket, session: i64) -> Result<Attempt, BackendError> {
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
                self.pool.ask("attempt", &message).await?
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

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
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

    async fn lock_row(
        self: &Arc<Self>,
        name: &LockName,
        transaction: &mut MySqlConnection,
    ) -> Result<bool, BackendError> {
        let values = Values::new().name(name);
        // Before the lock, which would lock the gap where there is no row.
        steps::make_row(self, &self.queries.make_row, name).await?;
        let lock = text(&self.queries.txlock.text(&values));
        let replies = send::<sqlx::MySql>(transaction, "lock", lock).await?;
        Ok(changed(&replies).is_some())
    }
}
