//! The order of tickets that wait: each has a place in the second table, and takes its turn.
//!
//! While a name has places, the lock is only taken with a look at them. What they mean is decided while the
//! row of the name is locked. A place that is not renewed ends with its window.

use std::time::Duration;

use lockkit_core::contract::Ticket;
use lockkit_core::store::waiters::Waiters;
use lockkit_core::{HolderId, queue_window};
use tokio::time::sleep;

use crate::dialect::{Steps, Store};
use crate::driver::{Columns as _, Driver as _, rows};
use crate::error::{Result, after};
use crate::places::{self, Known, Seen};
use crate::steps::pauses;
use crate::template::Template;
use crate::values::{Values, micros};

/// For how long attempts are refused that may still arrive, at most: the connection of a request without a reply is
/// closed long before.
const REFUSED: Duration = Duration::from_secs(60);

/// How long the place of a ticket lasts in microseconds: 0 if it does not wait.
pub(crate) fn window<S: Steps>(store: &Store<S>, ticket: &Ticket) -> i64 {
    match ticket.enqueue {
        true => micros(queue_window(&store.common.rules, ticket.ttl)),
        false => 0,
    }
}

/// Gives a ticket that waits a place, or renews it when a quarter of it is over. Returns what was seen with the place, and
/// whether another holds alone.
pub(crate) async fn place<S: Steps>(
    store: &Store<S>,
    ticket: &Ticket,
    seen: Seen,
) -> Result<(Seen, bool)> {
    let window = window(store, ticket);
    if !seen.needs_place(window) {
        return Ok((seen, true));
    }
    places::may_have_place(&store.common.waiters, ticket);
    let values = Values::of(ticket)
        .number("window", window)
        .number("exclusive", i64::from(ticket.mode.is_exclusive()));
    let step = &store.common.place;
    let read = |row: &<S::Driver as sqlx::Database>::Row| {
        let [place, end] = [2, 3].map(|column| row.number(column).unwrap_or(0));
        (place, end, row.truth(1))
    };
    let found = locked(store, "attempt", step, &values, 0, read).await?;
    let (place, end, held) = found.unwrap_or_default();
    // A release finds the place of a ticket that only renews it. Nothing tells an exclusive ticket of its turn here.
    let held = held || seen.place > 0 || ticket.mode.is_exclusive();
    Ok((Seen { place, end, ..seen }, held))
}

/// Forgets a ticket that is to be released. Returns what is left of it: whether it may have a place, and whether an
/// attempt of it may still arrive.
pub(crate) fn left(waiters: &Waiters<Known>, holder: HolderId) -> (bool, bool) {
    let known = waiters.forget(holder);
    let waits = known.as_ref().is_none_or(|known| known.data.waits);
    (waits, known.is_none_or(|known| known.unanswered))
}

/// Takes a ticket from those that wait. `late`: refuses attempts of it that may still arrive.
pub(crate) async fn withdraw<S: Steps>(
    store: &Store<S>,
    ticket: &Ticket,
    late: bool,
) -> Result<()> {
    let refuse = if late {
        ticket.ttl.min(REFUSED)
    } else {
        Duration::ZERO
    };
    let values = Values::of(ticket).number("refuse", micros(refuse));
    let withdraw = &store.common.withdraw;
    let done = locked(store, "release", withdraw, &values, 0, |_| ()).await?;
    done.ok_or_else(|| S::Driver::ERRORS.skipped("release"))
}

/// Sends a step of the row of a name, again while another transaction has it locked: `None` if it has for
/// long. `column` says whether the step had it, or did not need it.
pub(crate) async fn locked<S: Steps, T>(
    store: &Store<S>,
    operation: &'static str,
    step: &Template,
    values: &Values<'_>,
    column: usize,
    read: impl Fn(&<S::Driver as sqlx::Database>::Row) -> T,
) -> Result<Option<T>> {
    let mut pauses = pauses();
    let mut asked = false;
    loop {
        let replies = store.pool.transact(operation, step, values).await;
        let replies = replies.map_err(after(asked))?;
        // A place may have been given, of which the locked row does not tell yet.
        asked = operation == "attempt";
        // Without one, the row of the name has been deleted meanwhile.
        if let Some(row) = rows(&replies).last().filter(|row| row.truth(column)) {
            return Ok(Some(read(row)));
        }
        match pauses.next() {
            Some(pause) => sleep(pause).await,
            None => return Ok(None),
        }
    }
}
