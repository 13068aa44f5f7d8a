//! The lock inside the application's own transactions.

use async_trait::async_trait;
use lockkit_core::backend::Ticket;
use lockkit_core::{BackendError, FencingToken, Guard, LockClient, LockName};
use sqlx::Transaction;

use super::Postgres;
use super::session::{of, send};
use crate::guarded::{GuardedError, Inside, StillHeld, still_held};
use crate::pool::Use;

#[async_trait]
impl Inside for Postgres {
    async fn stands(
        &self,
        ticket: &Ticket,
        token: FencingToken,
        transaction: &mut Transaction<'_, sqlx::Postgres>,
    ) -> Result<bool, BackendError> {
        let text = self.statements().guard(ticket, token);
        let rows = send(&mut **transaction, text).await;
        let rows = rows.map_err(|error| of("guard", &error))?;
        Ok(!rows.is_empty())
    }

    async fn lock_row(
        &self,
        name: &LockName,
        transaction: &mut Transaction<'_, sqlx::Postgres>,
    ) -> Result<bool, BackendError> {
        // Outside the transaction: a row that was made inside would keep others waiting for its end.
        let text = self.statements().ensure(name);
        self.ask("lock", Use::Step, text).await?;
        let text = self.statements().txlock(name);
        let rows = send(&mut **transaction, text).await;
        let rows = rows.map_err(|error| of("lock", &error))?;
        Ok(!rows.is_empty())
    }
}

#[async_trait]
impl StillHeld<sqlx::Postgres> for LockClient {
    async fn still_held(
        &self,
        guard: &Guard,
        transaction: &mut Transaction<'_, sqlx::Postgres>,
    ) -> Result<(), GuardedError> {
        still_held::<Postgres>(self, guard, transaction).await
    }
}
