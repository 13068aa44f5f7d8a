//! Acquires and releases.

use std::time::Duration;

use lockkit_core::BackendError;
use lockkit_core::contract::{Attempt, Grant, Release, Ticket};
use sqlx::Row as _;

use super::error::ERRORS;
use super::open::{Sqlite, Value};
use crate::row;

impl Sqlite {
    pub(super) async fn acquire(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let acquire = &self.statements.acquire;
        let reply = self.ask("attempt", acquire, Value::lease(ticket)).await?;
        if let Some(row) = reply.rows.first() {
            let token = row.try_get(0).ok().and_then(row::token);
            let token = token.ok_or_else(|| ERRORS.unreadable("attempt"))?;
            return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
        }
        let values = [Value::name(&ticket.name)];
        let look = &self.statements.look_again;
        let reply = self.ask("attempt", look, values).await?;
        let row = reply.rows.first();
        let left = row.and_then(|row| row.try_get::<i64, _>(0).ok());
        let left = left.map_or(0, |left| u64::try_from(left).unwrap_or(0));
        Ok(Attempt::held_for(Some(Duration::from_micros(left))))
    }

    pub(super) async fn release_hold(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let values = [Value::name(&ticket.name), Value::holder(ticket)];
        let release = &self.statements.release;
        let reply = self.ask("release", release, values.clone()).await?;
        if reply.changed > 0 {
            return Ok(Release::Released);
        }
        let late = &self.statements.release_late;
        self.ask("release", late, values).await?;
        Ok(Release::NotHeld)
    }
}
