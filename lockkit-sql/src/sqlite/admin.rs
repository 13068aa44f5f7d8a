//! What operators do: list holds, break a lock, delete old rows.

use std::time::Duration;

use lockkit_core::contract::LockState;
use lockkit_core::{BackendError, LockName};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::error::ERRORS;
use super::open::{Sqlite, Value};
use crate::dialect::Which;
use crate::row::Row;
use crate::statement::micros;

impl Sqlite {
    pub(super) async fn rows(
        &self,
        operation: &'static str,
        which: Which<'_>,
    ) -> Result<Vec<Row>, BackendError> {
        let values = match which {
            Which::Name(name) => [Value::name(name), Value::Null],
            Which::Prefix(prefix) => [Value::Null, Value::Bytes(prefix.as_bytes().to_vec())],
        };
        let reply = self.ask(operation, &self.statements.look, values).await?;
        let rows: Result<Vec<Row>, _> = reply.rows.iter().map(read).collect();
        rows.map_err(|_| ERRORS.unreadable(operation))
    }

    pub(super) async fn break_hold(
        &self,
        name: &LockName,
    ) -> Result<Option<LockState>, BackendError> {
        let Some(row) = self.rows("break", Which::Name(name)).await?.pop() else {
            return Ok(None);
        };
        let Some(holder) = row.holder.clone() else {
            return Ok(None);
        };
        let values = [Value::name(name), Value::Text(holder)];
        // If it changes no row, the hold has ended by itself since the look.
        let break_lock = &self.statements.break_lock;
        self.ask("break", break_lock, values).await?;
        Ok(row.state())
    }

    pub(super) async fn delete_unused(&self, unused_for: Duration) -> Result<u64, BackendError> {
        let values = [Value::Number(micros(unused_for))];
        let reply = self.ask("purge", &self.statements.purge, values).await?;
        Ok(reply.rows.len() as u64)
    }
}

fn read(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    Ok(Row {
        name: row.try_get(0)?,
        holder: row.try_get(1)?,
        token: row.try_get(2)?,
        left: row.try_get(3)?,
    })
}
