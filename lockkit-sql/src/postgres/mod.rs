//! PostgreSQL: rows that are locked for one statement each, notifications, and sessions.

mod config;
mod driver;
mod open;
mod queries;
mod session;

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::Capabilities;
use lockkit_core::contract::{Attempt, Grant, Ticket};
use tokio::time::sleep;

use self::driver::ERRORS;
use self::queries::Queries;
use crate::backend::SqlStore;
use crate::config::{Options, Wake};
use crate::dialect::{Steps, Store};
use crate::driver::{Columns as _, Reply, Source, rows};
use crate::error::{Result, after};
use crate::guarded::Stored;
use crate::places::{self, Seen};
use crate::pool::Pool;
use crate::queries::Common;
use crate::session::start;
use crate::shares::STEP;
use crate::steps;
use crate::turns;
use crate::values::{Values, token};

/// Keeps locks in a table of PostgreSQL.
pub type PostgresStore = SqlStore<Postgres>;

/// PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    queries: Queries,
}

impl Stored for sqlx::Postgres {
    type Dialect = Postgres;
}

#[async_trait]
impl Steps for Postgres {
    type Driver = sqlx::Postgres;

    const PUSHES: bool = true;

    async fn open(
        source: Source<sqlx::Postgres>,
        options: &Options,
        rules: Capabilities,
    ) -> Result<(Pool<sqlx::Postgres>, Common, Self)> {
        // With a pooler in transaction mode, for which `wake=poll` is, each transaction may run in another
        // session, which knows other statements.
        let prepares = options.prepare && options.wake == Wake::Push;
        let pool = Pool::new(source, open::plain, options, prepares);
        let (common, queries) = open::find(&pool, options, rules).await?;
        Ok((pool, common, Self { queries }))
    }

    async fn start_session(store: &Arc<Store<Self>>, first: bool) -> Result<()> {
        start(store, first).await
    }

    /// Sends an attempt, again while the row is only locked for a moment: for a waiter once, because it
    /// comes back anyway.
    async fn attempt(store: &Store<Self>, ticket: &Ticket, session: i64) -> Result<Attempt> {
        let (common, window) = (&store.common, turns::window(store, ticket));
        let waiters = &common.waiters;
        if ticket.enqueue {
            places::may_have_place(waiters, ticket);
        }
        let values = Values::of(ticket)
            .number("session", session)
            .number("window", window);
        let most = if ticket.enqueue { 1 } else { usize::MAX };
        let mut pauses = steps::pauses().take(most);
        let mut asked = false;
        loop {
            let replies = store.pool.step("attempt", &common.acquire, &values).await;
            let replies = replies.map_err(after(asked))?;
            asked = window > 0;
            let row = rows(&replies).next();
            let row = row.ok_or_else(|| ERRORS.unreadable("attempt"))?;
            if let Some(token) = row.number(0).and_then(token) {
                places::told_to_hold(waiters, ticket);
                return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
            }
            let seen = Seen::read(row);
            let waits = seen.waits() && !seen.needs_place(window);
            match pauses.next() {
                Some(pause) if !waits => sleep(pause).await,
                _ => {
                    places::told_to_wait(waiters, ticket, Some(&seen));
                    return Ok(match waits {
                        true => seen.answer(&common.rules),
                        // Soon, if the row was locked, perhaps by a release, or no release will be notified.
                        false => Attempt::held_for(Some(STEP)),
                    });
                }
            }
        }
    }

    fn in_time(replies: &[Reply<sqlx::Postgres>]) -> Option<bool> {
        Some(rows(replies).next()?.truth(0))
    }

    fn taken(replies: &[Reply<sqlx::Postgres>]) -> Option<bool> {
        let row = rows(replies).next()?;
        let [locked, exists] = [0, 1].map(|column| row.truth(column));
        (locked || exists).then_some(locked)
    }
}
