//! Looks, breaks and purges.

use std::time::Duration;

use lockkit_core::BackendError;
use lockkit_core::contract::LockState;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::error::ERRORS;
use super::store::Postgres;
use crate::pool::Use;
use crate::row::Row;

impl Postgres {
    /// Sends a statement that returns rows of the table, and reads them.
    pub(super) async fn states(
        &self,
        operation: &'static str,
        text: String,
    ) -> Result<Vec<LockState>, BackendError> {
        let rows = self.ask(operation, Use::Step, text).await?;
        let rows: Result<Vec<_>, _> = rows.iter().map(read).collect();
        let rows = rows.map_err(|_| ERRORS.unreadable(operation))?;
        Ok(rows.iter().filter_map(Row::state).collect())
    }

    pub(super) async fn delete_unused(&self, unused_for: Duration) -> Result<u64, BackendError> {
        let text = self.statements.purge(unused_for);
        let rows = self.ask("purge", Use::Step, text).await?;
        let count = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok());
        let count = count.and_then(|count| u64::try_from(count).ok());
        count.ok_or_else(|| ERRORS.unreadable("purge"))
    }
}

fn read(row: &PgRow) -> Result<Row, sqlx::Error> {
    Ok(Row {
        name: row.try_get(0)?,
        holder: row.try_get(1)?,
        token: row.try_get(2)?,
        left: row.try_get(3)?,
    })
}
