//! The lock inside the application's own transactions.

use async_trait::async_trait;
use lockkit_core::backend::Ticket;
use lockkit_core::{BackendError, FencingToken, Guard, LockClient, LockName};
use sqlx::Transaction;

use super::message::{Answer, ask};
use super::{Mysql, SPELLING};
use crate::guarded::{GuardedError, Inside, StillHeld, still_held};
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
        let text = self.statements.guard.with(&values, SPELLING);
        let answers = inside("guard", transaction, &text).await?;
        Ok(answers.iter().any(|answer| !answer.rows.is_empty()))
    }

    async fn lock_row(
        &self,
        name: &LockName,
        transaction: &mut Transaction<'_, sqlx::MySql>,
    ) -> Result<bool, BackendError> {
        let values = Values::new().name(name);
        // On a connection of the store's own: everybody would wait for the end of a transaction that has
        // made the row. And before the lock, which would lock the gap where there is none.
        let make = self.statements.make_row.with(&values, SPELLING);
        self.ask("lock", &make).await?;
        let text = self.statements.txlock.with(&values, SPELLING);
        let answers = inside("lock", transaction, &text).await?;
        Ok(answers.iter().any(|answer| answer.changed > 0))
    }
}

async fn inside(
    operation: &'static str,
    transaction: &mut Transaction<'_, sqlx::MySql>,
    text: &str,
) -> Result<Vec<Answer>, BackendError> {
    let answers = ask(transaction, text).await;
    answers.map_err(|error| error.told(operation))
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
