//! The order of tickets that wait: each has a place in the second table, and takes its turn.
//!
//! While a name has places, the lock is only taken with a look at them. What they mean is decided while the
//! row of the name is locked. A place that is not renewed ends with its window.

use std::time::Duration;

use lockkit_core::contract::{Attempt, Grant, Ticket};
use lockkit_core::store::waiters::Entry;
use lockkit_core::{BackendError, Capabilities, FencingToken, HolderId, Waiting, queue_window};
use tokio::time::sleep;

use crate::dialect::Steps;
use crate::driver::{Columns, Driver as _, rows};
use crate::steps::{self, pauses};
use crate::template::{Template, Values, micros};

/// What this process knows of a ticket.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The key of the session that its hold ends with, or 0; and that of its place.
    pub(crate) session: i64,
    offered: i64,
    /// Whether it may have a place.
    waits: bool,
    /// The rest of its place, and the token of the row, when its last attempt found the lock held.
    place: Duration,
    token: i64,
    /// The token that a notification said is the ticket's.
    pushed: i64,
}

/// A lock that was not granted, as a ticket sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Whether another holds.
    pub(crate) held: bool,
    /// The rest of its lease in microseconds.
    pub(crate) left: i64,
    /// The rest of the ticket's place.
    pub(crate) place: i64,
    /// How many are before the ticket.
    pub(crate) before: i64,
    /// The token of the row, and how long ago it was made.
    pub(crate) token: i64,
    pub(crate) age: i64,
}

impl Seen {
    /// Reads it from the columns of `inspect`, from the first one that belongs to it.
    pub(crate) fn read(row: &impl Columns, first: usize) -> Self {
        let number = |column: usize| row.number(first + column).unwrap_or(0);
        Self {
            held: row.truth(first),
            left: number(1),
            place: number(2),
            before: number(3),
            token: number(5),
            age: number(6),
        }
    }

    /// Whether the ticket must wait for another.
    pub(crate) const fn waits(&self) -> bool {
        self.held || self.before > 0
    }

    /// Whether the place of a ticket with this window must be renewed.
    pub(crate) const fn needs_place(&self, window: i64) -> bool {
        self.place < window / 2
    }

    /// The result of an attempt that found another before the ticket. A waiter that nothing tells of its turn looks
    /// again after a quarter of the time that the lock has been held, and later if it is not the first.
    pub(crate) fn answer(&self, rules: &Capabilities) -> Attempt {
        let left = time(self.left).filter(|_| self.held);
        if rules.waiting == Waiting::Push {
            return Attempt::held_for(left);
        }
        let before = self.before + i64::from(self.held);
        let pause = time(self.age / 4 * before.max(1)).unwrap_or_default();
        let pause = pause.clamp(rules.poll.min, rules.poll.max);
        Attempt::held_for(Some(left.map_or(pause, |left| left.min(pause))))
    }
}

fn time(micros: i64) -> Option<Duration> {
    u64::try_from(micros).ok().map(Duration::from_micros)
}

/// How long the place of a ticket lasts in microseconds: 0 if it does not wait.
pub(crate) fn window<S: Steps>(store: &S, ticket: &Ticket) -> i64 {
    match ticket.enqueue {
        true => micros(queue_window(&store.common().rules, ticket.ttl)),
        false => 0,
    }
}

/// The ticket may have a place from now on: a request may be carried out without a reply.
pub(crate) fn may_have_place<S: Steps>(store: &S, ticket: &Ticket) {
    let note = |entry: &mut Entry<Known>| entry.data.waits = true;
    store.common().waiters.with(ticket.holder, note);
}

/// Whether the ticket may have a place.
pub(crate) fn has_waited<S: Steps>(store: &S, ticket: &Ticket) -> bool {
    let waiters = &store.common().waiters;
    waiters.with(ticket.holder, |entry| entry.data.waits) == Some(true)
}

/// The ticket was told to wait, at a place with this session.
pub(crate) fn told_to_wait<S: Steps>(store: &S, ticket: &Ticket, session: i64, seen: &Seen) {
    let place = time(seen.place).unwrap_or_default();
    let note = |entry: &mut Entry<Known>| {
        entry.data.place = place;
        entry.data.offered = session;
        entry.data.token = seen.token;
        match entry.data.pushed {
            // The grant came while the attempt was under way: it is as long as the place.
            pushed if pushed > seen.token => grant(entry),
            0 => {}
            _ => {
                entry.restart();
                entry.data.pushed = 0;
            }
        }
    };
    store.common().waiters.with(ticket.holder, note);
}

/// The ticket holds, and has no place any more.
pub(crate) fn granted<S: Steps>(store: &S, ticket: &Ticket) {
    let note = |entry: &mut Entry<Known>| entry.data.waits = false;
    store.common().waiters.with(ticket.holder, note);
}

/// A notification says that the ticket holds, with the session of its place.
pub(crate) fn pushed<S: Steps>(store: &S, holder: HolderId, token: i64) {
    let note = |entry: &mut Entry<Known>| {
        if token > entry.data.token {
            entry.data.session = entry.data.offered;
            entry.data.pushed = token;
            grant(entry);
        }
    };
    store.common().waiters.with(holder, note);
    // The order matters: if the session ends now, either its end finds the hold or this finds the end.
    if let Some(session) = store.active_session() {
        session.lose_if_ended(holder);
    }
}

fn grant(entry: &mut Entry<Known>) {
    let token: Option<FencingToken> = steps::token(entry.data.pushed);
    if let Some(token) = token {
        // The place became the hold.
        entry.data.waits = false;
        entry.granted(None, Grant::new(token, entry.data.place));
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
        told_to_wait(store, ticket, session, &seen);
        return Ok(Some(seen.answer(&store.common().rules)));
    }
    if !waiting && !has_waited(store, ticket) {
        return Ok(None);
    }
    let values = Values::of(ticket).number("session", session);
    let turn = &store.common().shares.turn;
    let token = locked(store, "attempt", turn, &values, 1, |row| row.number(0)).await?;
    let token = token.flatten().and_then(steps::token);
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
    may_have_place(store, ticket);
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
