//! The steps of the contract.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, LockName, Waiting};

use super::config::plain;
use super::error::{ERRORS, rejected};
use super::notify::Listener;
use super::open::table_of;
use super::statements::Statements;
use super::store::Postgres;
use crate::config::{Options, Wake};
use crate::dialect::{Counts, Source, Steps, Which};
use crate::error::Problem;
use crate::pool::Pool;

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
        let pool = Arc::new(Pool::new(source, plain, &options, ERRORS));
        let statements = Statements::new(&options.table);
        let statements = match table_of(&pool, &statements, &options).await? {
            Some(table) => Statements::new(&table),
            None => statements,
        };
        let statements = Arc::new(statements);
        let listener = Listener::new(&pool, &statements, options.pin);
        if options.pin {
            listener.begin().await?;
        }
        let push = options.wake == Wake::Push;
        Ok(Self {
            // A pooler in transaction mode, for which `wake=poll` is, gives each transaction another
            // session, which knows other statements.
            prepares: AtomicBool::new(options.prepare && push),
            pool,
            statements,
            listener,
            push,
            pin: options.pin,
        })
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.acquire(ticket).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        if !self.push && !self.pin {
            let text = "this store was opened with `wake=poll`";
            return Err(rejected("watch", Problem::Refused, text));
        }
        self.listener.start();
        Ok(Box::new(self.listener.waiters.watch(ticket)))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        self.renew_all(tickets).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.end(ticket).await
    }

    async fn look(&self, which: Which<'_>) -> Result<Vec<LockState>, BackendError> {
        self.states("inspect", self.statements.look(which)).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let mut found = self
            .states("break", self.statements.break_lock(name))
            .await?;
        Ok(found.pop())
    }

    async fn purge(&self, unused_for: Duration) -> Result<u64, BackendError> {
        self.delete_unused(unused_for).await
    }

    fn counts(&self) -> Counts {
        Counts {
            tickets: self.listener.waiters.len(),
            pins: self.listener.holds(),
            idle: self.pool.idle(),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.listener.close();
    }
}
