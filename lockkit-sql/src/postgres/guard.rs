//! The lock inside the application's own transactions.

use async_trait::async_trait;
use lockkit_core::contract::Ticket;
use lockkit_core::{BackendError, FencingToken, Guard, LockClient, LockName};
use sqlx::{Row as _, Transaction};

use super::error::{ERRORS, of};
use super::message::send;
use super::store::Postgres;
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
        let text = self.statements.guard(ticket, token);
        let rows = send(&mut **transaction, text).await;
        let rows = rows.map_err(|error| of("guard", &error))?;
        Ok(!rows.is_empty())
    }

    async fn lock_row(
        &self,
        name: &LockName,
        transaction: &mut Transaction<'_, sqlx::Postgres>,
    ) -> Result<bool, BackendError> {
        for _ in 0..2 {
            let text = self.statements.txlock(name);
            let rows = send(&mut **transaction, text).await;
            let rows = rows.map_err(|error| of("lock", &error))?;
            let row = rows.first().ok_or_else(|| ERRORS.unreadable("lock"))?;
            let said = row
                .try_get(0)
                .and_then(|taken| Ok((taken, row.try_get(1)?)));
            match said.map_err(|_| ERRORS.unreadable("lock"))? {
                (true, _) => return Ok(true),
                (false, true) => return Ok(false),
                // Made outside the transaction: others would wait for the end of one that made it.
                (false, false) => {
                    let text = self.statements.ensure(name);
                    self.ask("lock", Use::Step, text).await?;
                }
            }
        }
        Ok(false)
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
