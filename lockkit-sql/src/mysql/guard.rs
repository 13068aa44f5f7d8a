//! Locks inside transactions of the application.

use async_trait::async_trait;
use lockkit_core::contract::Ticket;
use lockkit_core::{BackendError, FencingToken, Guard, LockClient, LockName};
use sqlx::Transaction;

use super::connection::send;
use super::server::Mysql;
use super::statements::SPELLING;
use crate::guarded::{GuardedError, Inside, StillHeld, still_held};
use crate::pool::Use;
use crate::statement::Values;

#[async_trait]
impl Inside for Mysql {
    async fn stands(
        &self,
        ticket: &Ticket,
        token: FencingToken,
        transaction: &mut Transaction<'_, sqlx::MySql>,
    ) -> Result<bool, BackendError> {
        let values = Values::of(ticket).number("token", token.get().cast_signed());
        let guard = self.statements.guard.with(&values, SPELLING);
        let replies = send(transaction, &guard).await;
        let replies = replies.map_err(|error| error.report("guard"))?;
        Ok(replies.iter().any(|reply| !reply.rows.is_empty()))
    }

    async fn lock_row(
        &self,
        name: &LockName,
        transaction: &mut Transaction<'_, sqlx::MySql>,
    ) -> Result<bool, BackendError> {
        let values = Values::new().name(name);
        // On a connection of the store: others would wait for the end of a transaction that has inserted
        // the row. And before the lock, which would lock the gap where there is no row.
        let make = self.statements.make_row.with(&values, SPELLING);
        self.ask("lock", Use::Step, &make).await?;
        let lock = self.statements.txlock.with(&values, SPELLING);
        let replies = send(transaction, &lock).await;
        let replies = replies.map_err(|error| error.report("lock"))?;
        Ok(replies.iter().any(|reply| reply.changed > 0))
    }
}

#[async_trait]
impl StillHeld<sqlx::MySql> for LockClient {
    async fn still_held(
        &self,
        guard: &Guard,
        transaction: &mut Transaction<'_, sqlx::MySql>,
    ) -> Result<(), GuardedError> {
        still_held::<Mysql>(self, guard, transaction).await
    }
}
