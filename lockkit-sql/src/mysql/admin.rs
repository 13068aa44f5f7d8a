//! What operators do: list holds, break a lock, delete old rows.

use std::time::Duration;

use lockkit_core::contract::LockState;
use lockkit_core::{BackendError, LockName};
use sqlx::mysql::MySqlRow;
use tokio::time::sleep;

use super::connection::{bytes, number, text};
use super::error::ERRORS;
use super::server::Mysql;
use super::statements::SPELLING;
use crate::dialect::Which;
use crate::looks;
use crate::pool::Use;
use crate::row::Row;
use crate::statement::{Values, micros, push_bytes};

impl Mysql {
    pub(super) async fn rows(
        &self,
        operation: &'static str,
        which: Which<'_>,
    ) -> Result<Vec<Row>, BackendError> {
        let look = self.statements.look(which);
        let replies = self.ask(operation, Use::Step, &look).await?;
        let rows: Option<Vec<Row>> = replies.iter().flat_map(|it| &it.rows).map(read).collect();
        rows.ok_or_else(|| ERRORS.unreadable(operation))
    }

    pub(super) async fn break_hold(
        &self,
        name: &LockName,
    ) -> Result<Option<LockState>, BackendError> {
        let Some(row) = self.rows("break", Which::Name(name)).await?.pop() else {
            return Ok(None);
        };
        let Some(holder) = &row.holder else {
            return Ok(None);
        };
        let mut quoted = String::new();
        push_bytes(&mut quoted, holder.as_bytes(), SPELLING);
        let values = Values::new().name(name).text("holder", quoted);
        let end = self.statements.break_lock.with(&values, SPELLING);
        for pause in looks::pauses() {
            sleep(pause).await;
            let replies = self.ask("break", Use::Step, &end).await?;
            if replies.iter().any(|reply| reply.changed > 0) {
                return Ok(row.state());
            }
            // The row is locked, unless the hold has ended by itself.
            let now = self.rows("break", Which::Name(name)).await?;
            if !now.iter().any(|now| now.holder == row.holder) {
                return Ok(row.state());
            }
        }
        Err(ERRORS.skipped("break"))
    }

    pub(super) async fn delete_unused(&self, unused_for: Duration) -> Result<u64, BackendError> {
        let values = Values::new().number("unused", micros(unused_for));
        let delete = self.statements.purge.with(&values, SPELLING);
        let replies = self.ask("purge", Use::Step, &delete).await?;
        Ok(replies.iter().map(|reply| reply.changed).sum())
    }
}

fn read(row: &MySqlRow) -> Option<Row> {
    Some(Row {
        name: bytes(row, 0)?,
        holder: text(row, 1),
        token: number(row, 2)?,
        left: number(row, 3)?,
    })
}
