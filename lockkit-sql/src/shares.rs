//! Holds beside others: readers and permits, the exclusive tickets that wait for them, notes and hand-over.
//!
//! They have rows in the second table. While one of them holds, the row of the name says `~` as its holder
//! and ends with the last of them, so that exclusive tickets find it held. What the rows mean is decided
//! while the row of the name is locked.

use std::time::Duration;

use lockkit_core::contract::{Attempt, Grant, Release, Ticket};
use lockkit_core::store::lock;
use lockkit_core::{BackendError, HolderId, queue_window};
use tokio::time::sleep;

use crate::dialect::Steps;
use crate::driver::{Columns as _, Driver as _, rows};
use crate::steps::{self, pauses};
use crate::template::{Template, Values, micros};

/// How long a step locks a row, with a commit that waits for the disk.
pub(crate) const STEP: Duration = Duration::from_millis(10);

/// Tries to hold beside others.
pub(crate) async fn attempt<S: Steps>(store: &S, ticket: &Ticket) -> Result<Attempt, BackendError> {
    let waiting = store.waiting(ticket);
    let values = Values::of(ticket).number("waiting", waiting);
    let share = &store.common().shares.share;
    // Soon, if the row is locked, perhaps by a release.
    let locked = Ok(Attempt::held_for(Some(STEP)));
    grant(store, "attempt", share, &values, ticket, locked).await
}

/// Makes the hold of `from` that of a ticket.
pub(crate) async fn adopt<S: Steps>(
    store: &S,
    from: HolderId,
    ticket: &Ticket,
) -> Result<Attempt, BackendError> {
    let shares = &store.common().shares;
    let adopt = match ticket.mode.is_exclusive() {
        true => &shares.adopt,
        false => &shares.adopt_shared,
    };
    let values = Values::of(ticket).number("waiting", 0).holder("from", from);
    let locked = Err(S::Driver::ERRORS.skipped("adopt"));
    grant(store, "adopt", adopt, &values, ticket, locked).await
}

/// Sends a step that may make a hold, again while the row of the name is only locked: returns `locked` if it
/// is so for long.
async fn grant<S: Steps>(
    store: &S,
    operation: &'static str,
    step: &Template,
    values: &Values<'_>,
    ticket: &Ticket,
    locked: Result<Attempt, BackendError>,
) -> Result<Attempt, BackendError> {
    let text = step.text(values);
    let mut pauses = pauses();
    loop {
        let replies = store.pool().transact(operation, &text).await?;
        let row = rows(&replies).last();
        let row = row.ok_or_else(|| S::Driver::ERRORS.unreadable(operation))?;
        if let Some(token) = row.number(0).and_then(steps::token) {
            return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
        }
        if row.truth(1) {
            let left = row.number(2).and_then(|left| u64::try_from(left).ok());
            return Ok(Attempt::held_for(left.map(Duration::from_micros)));
        }
        match pauses.next() {
            Some(pause) => sleep(pause).await,
            None => return locked,
        }
    }
}

/// Ends a hold beside others.
pub(crate) async fn release<S: Steps>(store: &S, ticket: &Ticket) -> Result<Release, BackendError> {
    let unshare = store.common().shares.unshare.text(&Values::of(ticket));
    for pause in pauses() {
        let replies = store.pool().transact("release", &unshare).await?;
        let row = rows(&replies).last();
        let row = row.ok_or_else(|| S::Driver::ERRORS.unreadable("release"))?;
        match (row.truth(0), row.truth(1)) {
            (false, _) => return Ok(Release::NotHeld),
            (true, true) => return Ok(Release::Released),
            (true, false) => sleep(pause).await,
        }
    }
    Err(S::Driver::ERRORS.skipped("release"))
}

/// An exclusive ticket waits, while others hold together: later ones may not pass it.
pub(crate) async fn writer_waits<S: Steps>(store: &S, ticket: &Ticket) -> Result<(), BackendError> {
    if !ticket.enqueue {
        return Ok(());
    }
    let shares = &store.common().shares;
    // First: the request may be carried out without a reply.
    lock(&shares.waiting).insert(ticket.holder);
    let window = queue_window(&shares.rules, ticket.ttl);
    let values = Values::of(ticket).number("window", micros(window));
    let text = shares.writer_waits.text(&values);
    store.pool().ask("attempt", &text).await?;
    Ok(())
}

/// An exclusive ticket gives up, or ends its hold.
pub(crate) async fn writer_left<S: Steps>(store: &S, ticket: &Ticket) -> Result<(), BackendError> {
    let shares = &store.common().shares;
    if lock(&shares.waiting).contains(&ticket.holder) {
        let text = shares.writer_left.text(&Values::of(ticket));
        store.pool().ask("release", &text).await?;
        lock(&shares.waiting).remove(&ticket.holder);
    }
    Ok(())
}

/// Sets the note of a hold.
pub(crate) async fn note<S: Steps>(
    store: &S,
    ticket: &Ticket,
    note: &str,
) -> Result<bool, BackendError> {
    let values = Values::of(ticket).bytes("note", note.as_bytes());
    let text = store.common().shares.note.text(&values);
    let replies = store.pool().transact("note", &text).await?;
    Ok(rows(&replies).any(|row| row.truth(0)))
}
