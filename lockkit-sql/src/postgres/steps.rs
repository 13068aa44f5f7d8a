//! The steps of the contract.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::backend::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, LockName, Outcome, Waiting};
use sqlx::postgres::{PgPoolOptions, PgRow};
use sqlx::{PgPool, Row as _};

use super::error::ERRORS;
use super::notify::Desk;
use super::session::{Seen, Verdict, is_conflict, of, read, rejected, send, unreadable};
use super::statements::Statements;
use crate::backend::Counts;
use crate::config::{Options, Wake};
use crate::dialect::{Source, Steps, Which};
use crate::error::Problem;
use crate::pool::{Pool, Use};
use crate::schema::{Schema, misfit};
use crate::table::Table;

/// So many holds are renewed by one statement.
const CHUNK: usize = 500;
/// Names that are known to have a row, so that the shorter statement will do.
const KNOWN: usize = 65_536;

const COLUMNS: [(&str, &str); 8] = [
    ("name", "bytea"),
    ("holder", "text"),
    ("token", "bigint"),
    ("expires_at", "bigint"),
    ("waiting_until", "bigint"),
    ("pinned", "boolean"),
    ("UNIQUE", "(name)"),
    ("UNIQUE", "(name, token)"),
];

/// PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    pool: Pool<sqlx::Postgres>,
    /// Where the connection comes from that listens.
    listening: PgPool,
    statements: Statements,
    desk: Arc<Desk>,
    known: Mutex<HashSet<LockName>>,
    push: bool,
    pin: bool,
}

impl Postgres {
    pub(super) const fn statements(&self) -> &Statements {
        &self.statements
    }

    /// Sends one message on a connection that is closed if it does not answer to the end.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        by: Use,
        text: String,
    ) -> Result<Vec<PgRow>, BackendError> {
        let mut conflicts = 0;
        loop {
            let mut taken = self.pool.take(operation, by).await?;
            let Some(connection) = taken.connection() else {
                return Err(unreadable(operation));
            };
            match send(connection, text.clone()).await {
                Ok(rows) => {
                    taken.put_back();
                    return Ok(rows);
                }
                Err(error) if is_conflict(&error) && conflicts < 3 => {
                    conflicts += 1;
                    taken.put_back();
                }
                Err(error @ sqlx::Error::Database(_)) => {
                    let error = of(operation, &error);
                    if error.outcome() == Outcome::Indeterminate {
                        // Ended by the server.
                        drop(taken);
                        self.pool.distrust();
                    } else {
                        taken.put_back();
                    }
                    return Err(error);
                }
                Err(error) => {
                    drop(taken);
                    self.pool.distrust();
                    return Err(of(operation, &error));
                }
            }
        }
    }

    /// Makes the table if that is wished, and compares it.
    async fn prepare(&self, table: &Table, schema: Schema) -> Result<(), BackendError> {
        let mut found = self.columns().await?;
        if found.is_empty() && schema == Schema::Create {
            let create = self.statements.create();
            self.ask("open", Use::Step, create).await?;
            found = self.columns().await?;
        }
        let keys = |wanted: &str| {
            found
                .iter()
                .any(|(name, kind)| name == "UNIQUE" && kind == wanted)
        };
        let missing: Vec<(&str, &str)> = COLUMNS
            .into_iter()
            .filter(|(name, kind)| *name != "UNIQUE" || !keys(kind))
            .collect();
        let columns: Vec<(String, String)> = found
            .iter()
            .filter(|(name, _)| name != "UNIQUE")
            .cloned()
            .collect();
        match misfit(table, &missing, &columns) {
            None => Ok(()),
            Some(text) => Err(rejected("open", Problem::Schema, &text)),
        }
    }

    async fn columns(&self) -> Result<Vec<(String, String)>, BackendError> {
        let rows = self
            .ask("open", Use::Step, self.statements.columns())
            .await?;
        let column = |row: &PgRow| Ok((row.try_get(0)?, row.try_get(1)?));
        let columns: Result<_, sqlx::Error> = rows.iter().map(column).collect();
        columns.map_err(|_| unreadable("open"))
    }

    fn knows(&self, name: &LockName) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(name)
    }

    fn learn(&self, name: &LockName) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN {
            known.clear();
        }
        known.insert(name.clone());
    }

    fn forget_row(&self, name: &LockName) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(name);
    }

    /// Asks up to twice: a row that is locked for the moment says nothing.
    async fn acquire(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let note = self.push && ticket.enqueue;
        let mut whole = !self.knows(&ticket.name);
        for last in [false, true] {
            let text = self.statements.acquire(ticket, whole, note, false);
            let rows = self.ask("attempt", Use::Step, text).await?;
            let seen = Seen::read(&rows).map_err(|_| unreadable("attempt"))?;
            if seen.known || seen.token.is_some() {
                self.learn(&ticket.name);
            } else {
                self.forget_row(&ticket.name);
            }
            if let Verdict::Answer(answer) = seen.verdict(ticket, note, last) {
                return Ok(answer);
            }
            whole = true;
        }
        Ok(Attempt::held())
    }

    async fn renew_chunk(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let text = self.statements.renew(tickets);
        let rows = match self.ask("renew", Use::Renewal, text).await {
            Ok(rows) => rows,
            Err(error) => return tickets.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut answers: Vec<Result<Renewal, BackendError>> =
            tickets.iter().map(|_| Err(unreadable("renew"))).collect();
        for row in rows {
            let number = row.try_get::<i32, _>(0).ok();
            let number = number.and_then(|n| usize::try_from(n).ok());
            let said = (row.try_get(1), row.try_get(2));
            let Some(answer) = number.and_then(|n| answers.get_mut(n)) else {
                continue;
            };
            *answer = match said {
                (Ok(true), Ok(_)) => Ok(Renewal::Renewed { since: None }),
                (Ok(false), Ok(false)) => Ok(Renewal::NotHeld),
                (Ok(false), Ok(true)) => Err(ERRORS.skipped("renew")),
                _ => continue,
            };
        }
        answers
    }
}

#[async_trait]
impl Steps for Postgres {
    type Driver = sqlx::Postgres;

    const BACKEND: &'static str = ERRORS.backend;

    fn capabilities(options: &Options) -> Capabilities {
        let waiting = match options.wake {
            Wake::Push => Waiting::Push,
            Wake::Poll => Waiting::Poll,
        };
        Capabilities::new()
            .with_waiting(waiting)
            .with_poll(options.poll)
            .with_recheck(options.poll.max)
            .with_tells_loss(options.pin)
    }

    async fn open(source: Source<sqlx::Postgres>, options: Options) -> Result<Self, BackendError> {
        let listening = match &source {
            Source::Own(server) => PgPoolOptions::new()
                .max_connections(1)
                .max_lifetime(None)
                .idle_timeout(None)
                .connect_lazy_with((**server).clone()),
            Source::Application(pool) => pool.clone(),
        };
        let statements = Statements::new(&options);
        let this = Self {
            pool: Pool::new(source, &options, ERRORS),
            listening,
            desk: Arc::new(Desk::new(statements.channel.clone())),
            statements,
            known: Mutex::default(),
            push: options.wake == Wake::Push,
            pin: options.pin,
        };
        this.prepare(&options.table, options.schema).await?;
        Ok(this)
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        if !ticket.enqueue || !self.push {
            return self.acquire(ticket).await;
        }
        self.desk.attempting(ticket);
        let answer = self.acquire(ticket).await;
        self.desk.answered(ticket, &answer);
        answer
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        if !self.push && !self.pin {
            let text = "this store was opened with `wake=poll`";
            return Err(rejected("watch", Problem::Refused, text));
        }
        if self.push {
            self.desk.listen(&self.listening);
        }
        Ok(self.desk.watch(ticket))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let mut answers = Vec::with_capacity(tickets.len());
        for chunk in tickets.chunks(CHUNK) {
            answers.extend(self.renew_chunk(chunk).await);
        }
        answers
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let text = self.statements.release(ticket, false);
        let rows = self.ask("release", Use::Step, text).await?;
        self.desk.forget(ticket);
        match rows.first().map(|row| row.try_get::<bool, _>(0)) {
            Some(Ok(true)) => Ok(Release::Released),
            None | Some(Ok(false)) => Ok(Release::NotHeld),
            Some(Err(_)) => Err(unreadable("release")),
        }
    }

    async fn look(&self, which: Which<'_>) -> Result<Vec<LockState>, BackendError> {
        let text = self.statements.look(which);
        let rows = self.ask("inspect", Use::Step, text).await?;
        let rows: Result<Vec<_>, _> = rows.iter().map(read).collect();
        let rows = rows.map_err(|_| unreadable("inspect"))?;
        Ok(rows.iter().filter_map(crate::row::Row::state).collect())
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let text = self.statements.break_lock(name);
        let rows = self.ask("break", Use::Step, text).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let row = read(row).map_err(|_| unreadable("break"))?;
        Ok(row.state())
    }

    async fn purge(&self, unused_for: Duration) -> Result<u64, BackendError> {
        let text = self.statements.purge(unused_for);
        let rows = self.ask("purge", Use::Step, text).await?;
        let count = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok());
        let count = count.and_then(|count| u64::try_from(count).ok());
        count.ok_or_else(|| unreadable("purge"))
    }

    fn counts(&self) -> Counts {
        Counts {
            tickets: self.desk.tickets(),
            pins: 0,
            idle: self.pool.idle(),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.desk.close();
    }
}
