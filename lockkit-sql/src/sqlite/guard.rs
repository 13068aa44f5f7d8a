//! Locks inside transactions of the application.

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::contract::Ticket;
use lockkit_core::{BackendError, FencingToken, Guard, LockClient, LockName};
use sqlx::Transaction;

use super::error::ERRORS;
use super::open::{Sqlite, Value, run};
use crate::error::Phase;
use crate::guarded::{GuardedError, Inside, StillHeld, still_held};

#[async_trait]
impl Inside for Sqlite {
    async fn stands(
        &self,
        ticket: &Ticket,
        token: FencingToken,
        transaction: &mut Transaction<'_, sqlx::Sqlite>,
    ) -> Result<bool, BackendError> {
        let values = vec![
            Value::name(&ticket.name),
            Value::holder(ticket),
            Value::Number(token.get().cast_signed()),
        ];
        let statement = Arc::clone(&self.statements.guard);
        let reply = run(transaction, statement, values).await;
        let reply = reply.map_err(|error| ERRORS.of("guard", Phase::Asking, &error))?;
        Ok(!reply.rows.is_empty())
    }

    async fn lock_row(
        &self,
        name: &LockName,
        transaction: &mut Transaction<'_, sqlx::Sqlite>,
    ) -> Result<bool, BackendError> {
        let values = vec![Value::name(name)];
        let statement = Arc::clone(&self.statements.txlock);
        let reply = run(transaction, statement, values).await;
        let reply = reply.map_err(|error| ERRORS.of("lock", Phase::Asking, &error))?;
        Ok(!reply.rows.is_empty())
    }
}

#[async_trait]
impl StillHeld<sqlx::Sqlite> for LockClient {
    async fn still_held(
        &self,
        guard: &Guard,
        transaction: &mut Transaction<'_, sqlx::Sqlite>,
    ) -> Result<(), GuardedError> {
        still_held::<Sqlite>(self, guard, transaction).await
    }
}
