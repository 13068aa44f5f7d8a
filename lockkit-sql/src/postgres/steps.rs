//! The steps of the contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::backend::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, LockName, Waiting};
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::acquire::Known;
use super::config::plain;
use super::error::ERRORS;
use super::kept::{Kind, Message, Step, marked};
use super::notify::Desk;
use super::opening::table_of;
use super::pin::Pins;
use super::session::{is_conflict, is_unprepared, of, read, rejected, unreadable};
use super::statements::Statements;
use crate::backend::Counts;
use crate::config::{Options, Wake};
use crate::dialect::{Source, Steps, Which};
use crate::error::{Problem, unclear};
use crate::pool::{Pool, Use};
use crate::remembered::Remembered;
use crate::row::Row;

/// So many holds are renewed by one statement.
const CHUNK: usize = 500;

/// PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    pool: Arc<Pool<sqlx::Postgres>>,
    /// Whether sessions keep statements ready.
    keeps: AtomicBool,
    pub(super) statements: Arc<Statements>,
    pub(super) desk: Arc<Desk>,
    /// Names that have a row, and what was last seen of it.
    pub(super) known: Remembered<Known>,
    pub(super) push: bool,
    /// Where holds are pinned.
    pub(super) pins: Option<Pins>,
}

impl Postgres {
    pub(super) fn statements(&self) -> &Statements {
        &self.statements
    }

    /// Sends one message.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        by: Use,
        message: impl Into<Message>,
    ) -> Result<Vec<PgRow>, BackendError> {
        let asked = ask(&self.pool, &self.statements, operation, by, message.into());
        self.pool.request(operation, asked).await
    }

    /// Sends a step of a ticket, as a statement that the session keeps where that is possible.
    pub(super) async fn step(
        &self,
        operation: &'static str,
        kind: Kind,
        ticket: &Ticket,
        note: bool,
    ) -> Result<Vec<PgRow>, BackendError> {
        let step = || Step {
            kind,
            ticket: ticket.clone(),
            note,
        };
        if self.keeps.load(Ordering::Relaxed) {
            let message = Message::Step(step());
            match self.ask(operation, Use::Step, message).await {
                // The server has forgotten it, or its table has changed. Nothing was carried out.
                Err(error) if is_unprepared(&error) => self.keeps.store(false, Ordering::Relaxed),
                answer => return answer,
            }
        }
        let text = self.statements.plain(&step());
        self.ask(operation, Use::Step, text).await
    }

    /// Ends the session that has a row locked.
    async fn break_pin(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let text = self.statements.break_pin(name);
        let rows = self.ask("break", Use::Step, text).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let row = read(row).map_err(|_| unreadable("break"))?;
        let state = row.state();
        let holder = row.holder.and_then(|holder| holder.parse().ok());
        if let Some(holder) = holder {
            let ticket = Ticket::new(name.clone(), holder, Duration::ZERO);
            let text = self.statements.break_ended(&ticket);
            // The session was told to end, whatever becomes of this.
            self.ask("break", Use::Step, text).await.map_err(unclear)?;
        }
        Ok(state)
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
            let slot = number.and_then(|n| Some((answers.get_mut(n)?, tickets.get(n)?)));
            let Some((answer, ticket)) = slot else {
                continue;
            };
            *answer = match said {
                (Ok(true), Ok(_)) => Ok(Renewal::renewed(ticket.ttl)),
                (Ok(false), Ok(false)) => Ok(Renewal::NotHeld),
                (Ok(false), Ok(true)) => Err(ERRORS.skipped("renew")),
                _ => continue,
            };
        }
        answers
    }
}

/// Sends one message on a connection that is closed if it does not answer to the end.
pub(super) async fn ask(
    pool: &Pool<sqlx::Postgres>,
    statements: &Statements,
    operation: &'static str,
    by: Use,
    message: Message,
) -> Result<Vec<PgRow>, BackendError> {
    let mut conflicts = 0;
    loop {
        let mut taken = pool.take(operation, by).await?;
        let (connection, way) = taken.parts();
        let error = match message.send(connection, way, statements).await {
            Ok(rows) => {
                taken.put_back();
                return Ok(rows);
            }
            Err(error) => error,
        };
        let repeat = is_conflict(&error) && conflicts < 3;
        let told = of(operation, &error);
        if is_unprepared(&told) {
            // It does not keep what it was believed to.
            drop(taken);
        } else {
            taken.failed(&error, &told);
        }
        if !repeat {
            return Err(told);
        }
        conflicts += 1;
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
        let mut pool = Pool::new(source, plain, &options, ERRORS);
        if options.prepare {
            let mark = lockkit_core::ClientId::random().to_string();
            pool = pool.mark(marked, mark.into());
        }
        let pool = Arc::new(pool);
        let statements = Statements::new(&options, &options.table);
        let statements = match table_of(&pool, &statements, &options).await? {
            Some(table) => Statements::new(&options, &table),
            None => statements,
        };
        let desk = Arc::new(Desk::new(statements.channel.clone()));
        let pins = options.pin.then(|| Pins::new(&pool, Arc::clone(&desk)));
        Ok(Self {
            keeps: AtomicBool::new(options.prepare),
            pool,
            desk,
            statements: Arc::new(statements),
            known: Remembered::default(),
            push: options.wake == Wake::Push,
            pins,
        })
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let kept = ticket.enqueue && self.push;
        if kept {
            self.desk.attempting(ticket);
        }
        let answer = match &self.pins {
            Some(pins) => self.acquire_pinned(pins, ticket).await,
            None => self.acquire(ticket).await,
        };
        if kept {
            self.desk.answered(ticket, &answer);
        }
        answer
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        if !self.push && self.pins.is_none() {
            let text = "this store was opened with `wake=poll`";
            return Err(rejected("watch", Problem::Refused, text));
        }
        if self.push {
            self.desk.listen(&self.pool);
        }
        let watch = self.desk.watch(ticket);
        // Lost before anybody watched.
        if self
            .pins
            .as_ref()
            .is_some_and(|pins| pins.is_lost(ticket.holder))
        {
            self.desk.lost(ticket);
        }
        Ok(watch)
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        if let Some(pins) = &self.pins {
            return pins.renew(tickets).await;
        }
        let mut answers = Vec::with_capacity(tickets.len());
        for chunk in tickets.chunks(CHUNK) {
            answers.extend(self.renew_chunk(chunk).await);
        }
        answers
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.release_hold(ticket).await
    }

    async fn look(&self, which: Which<'_>) -> Result<Vec<LockState>, BackendError> {
        let text = self.statements.look(which);
        let rows = self.ask("inspect", Use::Step, text).await?;
        let rows: Result<Vec<_>, _> = rows.iter().map(read).collect();
        let rows = rows.map_err(|_| unreadable("inspect"))?;
        Ok(rows.iter().filter_map(Row::state).collect())
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let text = self.statements.break_lock(name);
        let rows = self.ask("break", Use::Step, text).await?;
        let Some(row) = rows.first() else {
            return self.break_pin(name).await;
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
            pins: self.pins.as_ref().map_or(0, Pins::count),
            idle: self.pool.idle(),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.desk.close();
    }
}
