//! The connections, statements and tickets of one store, and requests to its server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockkit_core::BackendError;
use lockkit_core::contract::Ticket;
use sqlx::postgres::PgRow;

use super::error::is_unprepared;
use super::message::{Message, ask};
use super::notify::Listener;
use super::statements::{Statements, Step};
use crate::pool::{Pool, Use};

/// PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    pub(super) pool: Arc<Pool<sqlx::Postgres>>,
    /// Whether sessions keep statements prepared.
    pub(super) prepares: AtomicBool,
    pub(super) statements: Arc<Statements>,
    /// Hears of releases, and is the session of the client where holds have one.
    pub(super) listener: Arc<Listener>,
    pub(super) push: bool,
    pub(super) pin: bool,
}

impl Postgres {
    /// Sends one message.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        by: Use,
        text: String,
    ) -> Result<Vec<PgRow>, BackendError> {
        ask(&self.pool, operation, by, Message::Text(text)).await
    }

    /// Sends a step of a ticket, as a statement that the session keeps prepared where that is possible.
    pub(super) async fn step(
        &self,
        operation: &'static str,
        step: &Step,
        ticket: &Ticket,
        note: i64,
        session: i64,
    ) -> Result<Vec<PgRow>, BackendError> {
        if self.prepares.load(Ordering::Relaxed) {
            let message = step.prepared(ticket, note, session);
            match ask(&self.pool, operation, Use::Step, message).await {
                // The session does not know it, or the table has changed. Nothing was carried out.
                Err(error) if is_unprepared(&error) => {
                    self.prepares.store(false, Ordering::Relaxed);
                }
                answer => return answer,
            }
        }
        let text = step.text(ticket, note, session);
        self.ask(operation, Use::Step, text).await
    }
}
