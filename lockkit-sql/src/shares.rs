//! Holds beside others: readers and permits; exclusive tickets that nothing tells of their turn; notes and hand-over.
//!
//! They have rows in the second table. While one of them holds, the row of the name says `~` as its holder
//! and ends with the last of them, so that exclusive tickets find it held. What the rows mean is decided
//! while the row of the name is locked.

use std::time::Duration;

use lockkit_core::contract::{Attempt, Grant, Release, Ticket};
use lockkit_core::{FencingToken, HolderId, Waiting};

use crate::dialect::{Steps, Store};
use crate::driver::{Columns, Driver as _, rows};
use crate::error::{Result, after};
use crate::places::{self, Seen};
use crate::queries::Taking;
use crate::turns::{self, locked};
use crate::values::{Values, token};

/// How long a step locks a row, with a commit that waits for the disk.
pub(crate) const STEP: Duration = Duration::from_millis(10);

/// How long a release takes that began before a place was there, with commits of both that wait for the disk.
const RELEASE: Duration = Duration::from_millis(50);

/// Tries to hold beside others; or alone in its turn, of which nothing tells the ticket.
pub(crate) async fn attempt<S: Steps>(
    store: &Store<S>,
    ticket: &Ticket,
    session: i64,
) -> Result<Attempt> {
    let values = Values::of(ticket)
        .number("window", turns::window(store, ticket))
        .number("session", session);
    let common = &store.common;
    let (rules, waiters) = (&common.rules, &common.waiters);
    let alone = ticket.mode.is_exclusive();
    let has_waited = places::has_waited(waiters, ticket);
    let take = if alone { &common.turn } else { &common.share };
    let places = ticket.enqueue && common.places_at_once;
    if places {
        places::may_have_place(waiters, ticket);
    }
    // Most looks of a waiter find nothing to do but to keep its place. One that shares and has no place may hold by now.
    let kept = match alone || has_waited {
        true => look(store, take, &values).await?,
        false => None,
    };
    let kept = kept.filter(|seen| alone || seen.place > 0);
    let is_new = ticket.enqueue && kept.is_none();
    let found = match kept {
        Some(seen) => Some(Shared::Refused(seen, false)),
        None => locked(store, "attempt", &take.step, &values, 1, Shared::read).await?,
    };
    Ok(match found {
        Some(Shared::Granted(mut token, told)) => {
            places::told_to_hold(waiters, ticket);
            if !told {
                token = tell_again(store, take, &values, token).await;
            }
            Attempt::Granted(Grant::new(token, ticket.ttl))
        }
        Some(Shared::Refused(seen, ended)) => {
            end_with_session(store, &values, ended).await?;
            let placed = turns::place(store, ticket, seen).await;
            let (seen, held) = placed.map_err(after(places))?;
            places::told_to_wait(waiters, ticket, Some(&seen));
            // Others may have made room before there was a place.
            let look = async || look(store, take, &values).await.map_err(after(true));
            let refused = held || look().await?.is_some();
            // A release under way may not see a new place, and tells only those whose places it sees.
            match refused {
                true if is_new && rules.waiting == Waiting::Push => {
                    Attempt::held_for(Some(RELEASE))
                }
                true => seen.answer(rules),
                false => Attempt::held_for(Some(STEP)),
            }
        }
        // Soon, if the row is locked, perhaps by a release. A transaction of an application may lock it for long.
        None => {
            places::told_to_wait(waiters, ticket, None);
            Attempt::held_for((!alone).then_some(STEP))
        }
    })
}

/// Makes the row of the name tell of a place that was taken during a turn. Returns the token of the hold: another one if
/// that was broken in between, and is a new one now.
async fn tell_again<S: Steps>(
    store: &Store<S>,
    take: &Taking,
    values: &Values<'_>,
    token: FencingToken,
) -> FencingToken {
    // If it fails, a newcomer may pass that ticket.
    match locked(store, "attempt", &take.step, values, 1, Shared::read).await {
        Ok(Some(Shared::Granted(token, _))) => token,
        _ => token,
    }
}

/// What would make a ticket wait; `None` if nothing would. Waits for no lock. If it is a holder whose session has ended,
/// that does not last for long any more.
async fn look<S: Steps>(
    store: &Store<S>,
    take: &Taking,
    values: &Values<'_>,
) -> Result<Option<Seen>> {
    let replies = store.pool.step("attempt", &take.look, values).await?;
    let Some(row) = rows(&replies).last() else {
        return Ok(None);
    };
    end_with_session(store, values, row.truth(8)).await?;
    Ok(row.truth(1).then(|| seen(row)))
}

/// Shortens the lease of a holder whose session has `ended`.
async fn end_with_session<S: Steps>(
    store: &Store<S>,
    values: &Values<'_>,
    ended: bool,
) -> Result<()> {
    let shorten = store.common.end_with_session.as_ref();
    if let Some(shorten) = shorten.filter(|_| ended) {
        store.pool.ask("attempt", &shorten.text(values)).await?;
    }
    Ok(())
}

/// Makes the hold of `from` that of a ticket.
pub(crate) async fn adopt<S: Steps>(
    store: &Store<S>,
    from: HolderId,
    ticket: &Ticket,
) -> Result<Attempt> {
    let adopt = match ticket.mode.is_exclusive() {
        true => &store.common.adopt,
        false => &store.common.adopt_shared,
    };
    let values = Values::of(ticket).number("window", 0).holder("from", from);
    match locked(store, "adopt", adopt, &values, 1, Shared::read).await? {
        Some(Shared::Granted(token, _)) => Ok(Attempt::Granted(Grant::new(token, ticket.ttl))),
        Some(Shared::Refused(..)) => Ok(Attempt::held()),
        None => Err(S::Driver::ERRORS.skipped("adopt")),
    }
}

/// What a step that may make a hold has found.
enum Shared {
    /// With the token, and whether the row of the name tells of all places.
    Granted(FencingToken, bool),
    /// With whether the session of the holder has ended.
    Refused(Seen, bool),
}

impl Shared {
    fn read(row: &impl Columns) -> Self {
        let token = row.number(0).and_then(token);
        match token {
            Some(token) => Self::Granted(token, row.truth(9)),
            None => Self::Refused(seen(row), row.truth(8)),
        }
    }
}

/// What makes a ticket wait.
fn seen(row: &impl Columns) -> Seen {
    let seen = Seen::read(row);
    let held = seen.left > 0;
    Seen { held, ..seen }
}

pub(crate) async fn release<S: Steps>(store: &Store<S>, ticket: &Ticket) -> Result<Release> {
    let (unshare, values) = (&store.common.unshare, Values::of(ticket));
    let held = locked(store, "release", unshare, &values, 1, |row| row.truth(0)).await?;
    match held {
        Some(true) => Ok(Release::Released),
        Some(false) => Ok(Release::NotHeld),
        None => Err(S::Driver::ERRORS.skipped("release")),
    }
}

pub(crate) async fn note<S: Steps>(store: &Store<S>, ticket: &Ticket, note: &str) -> Result<bool> {
    let values = Values::of(ticket).bytes("note", note.as_bytes());
    let note = &store.common.note;
    let replies = store.pool.transact("note", note, &values).await?;
    Ok(rows(&replies).any(|row| row.truth(0)))
}
