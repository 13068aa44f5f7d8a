//! Locks that nobody else wants: their steps pass over nothing.

use std::sync::atomic::Ordering;

use lockkit_core::BackendError;
use lockkit_core::backend::{Attempt, Ticket};

use super::Mysql;
use super::kept::{Kept, Message, is_unprepared};
use super::message::Answer;
use super::seen::{granted, taken};
use super::session::is_locked;
use crate::pool::Use;

/// A lock is calm that was given so many times, each time that it was asked for.
const CALM: u8 = 4;

/// How many times the lock of a row was given, each time that it was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Calm(u8);

impl Mysql {
    /// Takes a lock if it is calm; `None` if it has to be asked for as any other.
    pub(super) async fn acquire_again(
        &self,
        ticket: &Ticket,
    ) -> Result<Option<Attempt>, BackendError> {
        let acquire = &self.statements.again.acquire;
        let answer = self.ask_again("attempt", acquire, ticket).await?;
        match answer.and_then(|answer| taken(&[answer])) {
            Some(token) => granted(token, ticket).map(Some),
            None => Ok(None),
        }
    }

    /// Ends a hold of a lock that is calm, if its lease stands.
    pub(super) async fn release_again(&self, ticket: &Ticket) -> Result<bool, BackendError> {
        let release = &self.statements.again.release;
        let answer = self.ask_again("release", release, ticket).await?;
        Ok(answer.is_some_and(|answer| answer.changed > 0))
    }

    /// `None` if the lock is not calm, sessions keep no statements, or somebody has the row locked for
    /// longer than is waited for it.
    async fn ask_again(
        &self,
        operation: &'static str,
        again: &Kept,
        ticket: &Ticket,
    ) -> Result<Option<Answer>, BackendError> {
        let calm = self.known.get(&ticket.name);
        let calm = calm.filter(|Calm(times)| *times >= CALM && self.keeps.load(Ordering::Relaxed));
        let Some(calm) = calm else {
            return Ok(None);
        };
        // So it stays if the caller cannot wait so long.
        self.known.set(&ticket.name, Calm(0));
        let message = Message::Kept(again.clone(), ticket.clone());
        let answer = match self.send(operation, Use::Step, message).await {
            Ok(mut answers) => answers.pop(),
            Err(error) if is_unprepared(&error) || is_locked(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        if answer.as_ref().is_some_and(|answer| answer.changed > 0) {
            self.known.set(&ticket.name, calm);
        }
        Ok(answer)
    }

    /// A lock was given, as any other; `at_once`: at the first time of asking.
    pub(super) fn given(&self, ticket: &Ticket, at_once: bool) {
        let Calm(times) = self.known.get(&ticket.name).unwrap_or_default();
        let times = if at_once { times.saturating_add(1) } else { 0 };
        self.known.set(&ticket.name, Calm(times));
    }

    /// Somebody else has a lock that is known, or its row is locked.
    pub(super) fn wanted(&self, ticket: &Ticket) {
        if self.known.get(&ticket.name).is_some() {
            self.known.set(&ticket.name, Calm(0));
        }
    }
}
