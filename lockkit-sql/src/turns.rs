//! The order of tickets that wait: each has a place in the second table, and takes its turn.
//!
//! While a name has places, the lock is only taken with a look at them. What they mean is decided while the
//! row of the name is locked. A place that is not renewed ends with its window.

use std::time::Duration;

use lockkit_core::contract::{Attempt, Grant, Ticket};
use lockkit_core::{BackendError, queue_window};
use tokio::time::sleep;

use crate::dialect::Steps;
use crate::driver::{Columns as _, Driver as _, rows};
use crate::places::{Places as _, Seen};
use crate::steps::pauses;
use crate::template::{Template, Values, micros, token};

/// How long the place of a ticket lasts in microseconds: 0 if it does not wait.
pub(crate) fn window<S: Steps>(store: &S, ticket: &Ticket) -> i64 {
    match ticket.enqueue {
        true => micros(queue_window(&store.common().rules, ticket.ttl)),
        false => 0,
    }
}

/// Lets an exclusive ticket wait that found the lock held, or tickets that wait, where nothing tells it of its turn.
/// `waiting`: whether any wait. Returns `None` if the lock is free, and only the row locked.
pub(crate) async fn wait<S: Steps>(
    store: &S,
    ticket: &Ticket,
    session: i64,
    seen: &Seen,
    waiting: bool,
) -> Result<Option<Attempt>, BackendError> {
    if seen.waits() {
        let mut seen = *seen;
        (seen.place, _) = place(store, ticket, &seen).await?;
        store.common().waiters.told_to_wait(ticket, session, &seen);
        return Ok(Some(seen.answer(&store.common().rules)));
    }
    if !waiting && !store.common().waiters.has_waited(ticket) {
        return Ok(None);
    }
    let values = Values::of(ticket).number("session", session);
    let turn = &store.common().shares.turn;
    let found = locked(store, "attempt", turn, &values, 1, |row| row.number(0)).await?;
    let token = found.flatten().and_then(token);
    Ok(token.map(|token| Attempt::Granted(Grant::new(token, ticket.ttl))))
}

/// Gives a ticket that waits a place, or renews it when half of it is over. Returns the rest of it, and whether the lock
/// is held.
pub(crate) async fn place<S: Steps>(
    store: &S,
    ticket: &Ticket,
    seen: &Seen,
) -> Result<(i64, bool), BackendError> {
    let window = window(store, ticket);
    if !seen.needs_place(window) {
        return Ok((seen.place, true));
    }
    store.common().waiters.may_have_place(ticket);
    let values = Values::of(ticket)
        .number("window", window)
        .number("exclusive", i64::from(ticket.mode.is_exclusive()));
    let place = &store.common().shares.place;
    let held = locked(store, "attempt", place, &values, 0, |row| row.truth(1)).await?;
    Ok((window, held == Some(true)))
}

/// Forgets a ticket that is to be released. The future takes it from those that wait, if it may be one of them, and
/// refuses its attempts that may still arrive for as long as their hold would last.
pub(crate) fn withdrawal<S: Steps>(
    store: &S,
    ticket: &Ticket,
) -> impl Future<Output = Result<(), BackendError>> + Send {
    let known = store.common().waiters.forget(ticket.holder);
    let waits = known.as_ref().is_none_or(|known| known.data.waits);
    let late = known.is_none_or(|known| known.unanswered);
    let refuse = if late { ticket.ttl } else { Duration::ZERO };
    async move {
        if waits || late {
            withdraw(store, ticket, refuse).await?;
        }
        Ok(())
    }
}

async fn withdraw<S: Steps>(
    store: &S,
    ticket: &Ticket,
    refuse: Duration,
) -> Result<(), BackendError> {
    let values = Values::of(ticket).number("refuse", micros(refuse));
    let withdraw = &store.common().shares.withdraw;
    let done = locked(store, "release", withdraw, &values, 0, |_| ()).await?;
    done.ok_or_else(|| S::Driver::ERRORS.skipped("release"))
}

/// Sends a step of the row of a name, again while another transaction has it locked: `None` if it has for
/// long. `column` says whether the step had it.
async fn locked<S: Steps, T>(
    store: &S,
    operation: &'static str,
    step: &Template,
    values: &Values<'_>,
    column: usize,
    read: impl Fn(&<S::Driver as sqlx::Database>::Row) -> T,
) -> Result<Option<T>, BackendError> {
    let text = step.text(values);
    for pause in pauses() {
        sleep(pause).await;
        let replies = store.pool().transact(operation, &text).await?;
        let row = rows(&replies).last();
        let row = row.ok_or_else(|| S::Driver::ERRORS.unreadable(operation))?;
        if row.truth(column) {
            return Ok(Some(read(row)));
        }
    }
    Ok(None)
}
