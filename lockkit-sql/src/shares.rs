//! Holds beside others: readers and permits, the exclusive tickets that wait for them, notes and hand-over.
//!
//! They have rows in the second table. While one of them holds, the row of the name says `~` as its holder
//! and ends with the last of them, so that exclusive tickets find it held. What the rows mean is decided
//! while the row of the name is locked.

use std::iter::once;
use std::time::Duration;

use lockkit_core::contract::{Attempt, Grant, Release, Ticket};
use lockkit_core::{FencingToken, HolderId, Waiting};
use tokio::time::sleep;

use crate::dialect::Steps;
use crate::driver::{Columns as _, Driver as _, Reply, rows};
use crate::error::Result;
use crate::places::{self, Seen};
use crate::steps::pauses;
use crate::template::Template;
use crate::turns;
use crate::values::{Values, token};

/// How long a step locks a row, with a commit that waits for the disk.
pub(crate) const STEP: Duration = Duration::from_millis(10);

/// How long a release takes that began before a place was there, with commits of both that wait for the disk.
const RELEASE: Duration = Duration::from_millis(50);

/// Tries to hold beside others.
pub(crate) async fn attempt<S: Steps>(store: &S, ticket: &Ticket) -> Result<Attempt> {
    let values = Values::of(ticket).number("window", 0);
    let share = &store.common().shares.share;
    let (rules, waiters) = (&store.common().rules, &store.common().waiters);
    // Most looks of a waiter find nothing to do but to keep its place. One without a place may hold by now.
    let found = if places::has_waited(waiters, ticket)
        && let Shared::Refused(seen) = look(store, &values).await?
        && seen.place > 0
    {
        Shared::Refused(seen)
    } else {
        send(store, "attempt", share, &values).await?
    };
    Ok(match found {
        Shared::Granted(token) => {
            places::told_to_hold(waiters, ticket);
            Attempt::Granted(Grant::new(token, ticket.ttl))
        }
        Shared::Refused(seen) => {
            let is_new = ticket.enqueue && seen.place <= 0;
            let (seen, held) = turns::place(store, ticket, seen).await?;
            places::told_to_wait(waiters, ticket, Some(&seen));
            // Others may have made room before there was a place.
            let refused = held || matches!(look(store, &values).await?, Shared::Refused(_));
            // A release under way may not see a new place, and tells only those whose places it sees.
            match refused {
                true if is_new && rules.waiting == Waiting::Push => {
                    Attempt::held_for(Some(RELEASE))
                }
                true => seen.answer(rules),
                false => Attempt::held_for(Some(STEP)),
            }
        }
        // Soon, if the row is locked, perhaps by a release.
        Shared::Locked => {
            places::told_to_wait(waiters, ticket, None);
            Attempt::held_for(Some(STEP))
        }
    })
}

/// What a ticket would find. Waits for no lock.
async fn look<S: Steps>(store: &S, values: &Values<'_>) -> Result<Shared> {
    let look = &store.common().shares.look;
    let replies = store.pool().step("attempt", look, values).await?;
    Shared::read::<S>(&replies, "attempt")
}

/// Makes the hold of `from` that of a ticket.
pub(crate) async fn adopt<S: Steps>(store: &S, from: HolderId, ticket: &Ticket) -> Result<Attempt> {
    let shares = &store.common().shares;
    let adopt = match ticket.mode.is_exclusive() {
        true => &shares.adopt,
        false => &shares.adopt_shared,
    };
    let values = Values::of(ticket).number("window", 0).holder("from", from);
    match send(store, "adopt", adopt, &values).await? {
        Shared::Granted(token) => Ok(Attempt::Granted(Grant::new(token, ticket.ttl))),
        Shared::Refused(_) => Ok(Attempt::held()),
        Shared::Locked => Err(S::Driver::ERRORS.skipped("adopt")),
    }
}

/// What a step that may make a hold has found.
enum Shared {
    Granted(FencingToken),
    Refused(Seen),
    /// The row of the name is locked, for long.
    Locked,
}

impl Shared {
    fn read<S: Steps>(replies: &[Reply<S::Driver>], operation: &'static str) -> Result<Self> {
        let row = rows(replies).last();
        let row = row.ok_or_else(|| S::Driver::ERRORS.unreadable(operation))?;
        if let Some(token) = row.number(0).and_then(token) {
            return Ok(Self::Granted(token));
        }
        if !row.truth(1) {
            return Ok(Self::Locked);
        }
        let seen = Seen::read(row);
        let held = seen.left > 0;
        Ok(Self::Refused(Seen { held, ..seen }))
    }
}

/// Sends a step that may make a hold, again while the row of the name is only locked.
async fn send<S: Steps>(
    store: &S,
    operation: &'static str,
    step: &Template,
    values: &Values<'_>,
) -> Result<Shared> {
    for pause in once(Duration::ZERO).chain(pauses()) {
        sleep(pause).await;
        let replies = store.pool().transact(operation, step, values).await?;
        match Shared::read::<S>(&replies, operation)? {
            Shared::Locked => {}
            found => return Ok(found),
        }
    }
    Ok(Shared::Locked)
}

pub(crate) async fn release<S: Steps>(store: &S, ticket: &Ticket) -> Result<Release> {
    let (unshare, values) = (&store.common().shares.unshare, Values::of(ticket));
    for pause in pauses() {
        let replies = store.pool().transact("release", unshare, &values).await?;
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

pub(crate) async fn note<S: Steps>(store: &S, ticket: &Ticket, note: &str) -> Result<bool> {
    let values = Values::of(ticket).bytes("note", note.as_bytes());
    let note = &store.common().shares.note;
    let replies = store.pool().transact("note", note, &values).await?;
    Ok(rows(&replies).any(|row| row.truth(0)))
}
