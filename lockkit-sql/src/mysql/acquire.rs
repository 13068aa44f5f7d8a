//! Acquires.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::contract::{Attempt, Grant, Ticket};
use lockkit_core::{BackendError, Outcome};
use tokio::time::sleep;

use super::connection::{Reply, number, truth};
use super::error::ERRORS;
use super::pin::Proof;
use super::server::Mysql;
use super::session::WAIT_OUT;
use super::statements::{Args, SPELLING};
use crate::error::Problem;
use crate::looks;
use crate::pool::Use;
use crate::row;
use crate::statement::{Values, micros};

/// The row of a lock that was not granted or not released.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) mine: bool,
    held: bool,
    left: i64,
    /// The session of the hold if it has ended, else 0.
    ended: i64,
}

impl Mysql {
    pub(super) async fn acquire(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let pin = match &self.pins {
            Some(pins) => Some(pins.session(Box::pin(self.open_session())).await?),
            None => None,
        };
        let session = pin.as_ref().map_or(0, |pin| pin.key);
        let args = Args { ticket, session };
        let mut has_row = self.names.get(&ticket.name).is_some();
        let mut pauses = looks::pauses();
        loop {
            let replies = if has_row {
                self.ask_step("attempt", &self.statements.acquire, args)
                    .await?
            } else {
                let acquire = self.statements.acquire_new(args);
                self.ask("attempt", Use::Step, &acquire).await?
            };
            if let Some(reply) = replies.iter().find(|reply| reply.changed > 0) {
                self.names.set(&ticket.name, ());
                return self.granted(ticket, reply, pin);
            }
            let seen = self.look_again("attempt", ticket).await?;
            has_row = seen.is_some();
            if let Some(seen) = seen.filter(|seen| !seen.is_free()) {
                return self.held(ticket, &seen).await;
            }
            // Another transaction has the row locked, or has just deleted it.
            match pauses.next() {
                Some(pause) => sleep(pause).await,
                None => return Ok(Attempt::held()),
            }
        }
    }

    fn granted(
        &self,
        ticket: &Ticket,
        reply: &Reply,
        pin: Option<Arc<Proof>>,
    ) -> Result<Attempt, BackendError> {
        if let (Some(pins), Some(pin)) = (&self.pins, pin)
            && !pins.granted(ticket.holder, pin)
        {
            let text = "the session of the pin has ended";
            let (problem, outcome) = (Problem::Connection, Outcome::Indeterminate);
            return Err(ERRORS.fault("attempt", problem, outcome, text));
        }
        let token = i64::try_from(reply.insert_id).ok().and_then(row::token);
        let token = token.ok_or_else(|| ERRORS.unreadable("attempt"))?;
        Ok(Attempt::Granted(Grant::new(token, ticket.ttl)))
    }

    async fn held(&self, ticket: &Ticket, seen: &Seen) -> Result<Attempt, BackendError> {
        let wait = micros(WAIT_OUT);
        let mut left = seen.left;
        if seen.ended != 0 && left > wait {
            let values = Values::new().name(&ticket.name);
            let values = values.number("session", seen.ended).number("wait", wait);
            let shorten = self.statements.session_ended.with(&values, SPELLING);
            self.ask("attempt", Use::Step, &shorten).await?;
            left = wait;
        }
        let left = u64::try_from(left).ok().map(Duration::from_micros);
        Ok(Attempt::held_for(left))
    }

    /// Reads the row of a ticket's lock; `None` if there is none.
    pub(super) async fn look_again(
        &self,
        operation: &'static str,
        ticket: &Ticket,
    ) -> Result<Option<Seen>, BackendError> {
        let look = self
            .statements
            .look_again
            .with(&Values::of(ticket), SPELLING);
        let replies = self.ask(operation, Use::Step, &look).await?;
        let Some(row) = replies.first().and_then(|reply| reply.rows.first()) else {
            return Ok(None);
        };
        let numbers = number(row, 2).zip(number(row, 3));
        let (left, ended) = numbers.ok_or_else(|| ERRORS.unreadable(operation))?;
        Ok(Some(Seen {
            mine: truth(row, 0),
            held: truth(row, 1),
            left,
            ended,
        }))
    }
}

impl Seen {
    const fn is_free(&self) -> bool {
        !self.held || self.mine || self.left <= 0
    }
}
