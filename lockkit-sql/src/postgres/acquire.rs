//! Attempts: the row is taken, and pinned where that is wished.

use std::time::Duration;

use lockkit_core::backend::{Attempt, Grant, Renewal, Ticket};
use lockkit_core::{BackendError, FencingToken};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::{Instant, sleep};

use super::Postgres;
use super::kept::Kind;
use super::pin::Pins;
use super::session::{Seen, Verdict, take_pin, unreadable};
use crate::{looks, row};

/// Of the release of a lock for which somebody had left a note it is certain for so long that it will be
/// told. Far less than is left of a note when it is written anew.
const TOLD: Duration = Duration::from_millis(500);

/// What was seen of the row of a lock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Known {
    /// Somebody else had it, or waited for it.
    Busy,
    /// Nobody waited for it when it was taken.
    Calm,
    /// Its release will be told, if it comes before this.
    Told(Instant),
}

impl Known {
    fn of(seen: &Seen) -> Self {
        let noted = seen.noted_for();
        if !noted.is_zero() {
            Self::Told(Instant::now() + noted.min(TOLD))
        } else if seen.token.is_some() {
            Self::Calm
        } else {
            Self::Busy
        }
    }

    /// Whether the short statement will probably do: there is a row, and nobody waits for it.
    const fn is_calm(self) -> bool {
        matches!(self, Self::Calm)
    }

    /// Whether who finds the lock held will hear of its release.
    fn is_told(self) -> bool {
        matches!(self, Self::Told(until) if Instant::now() < until)
    }
}

impl Postgres {
    /// Asks again while the row is locked for the moment, which says nothing. Of a lock that was free of
    /// late it asks no more at first than whether it is free, and a waiter asks nothing else while it is
    /// certain to be told of the release.
    pub(super) async fn acquire(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let note = self.push && ticket.enqueue;
        let known = self.known.get(&ticket.name);
        let told = note && known.is_some_and(Known::is_told);
        if told || known.is_some_and(Known::is_calm) {
            let rows = self.step("attempt", Kind::Acquire, ticket, note).await?;
            if let Some(token) = given(&rows)? {
                return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
            }
            if told {
                return Ok(Attempt::held());
            }
        }
        let mut pauses = pauses(ticket);
        loop {
            let rows = self.step("attempt", Kind::AcquireNew, ticket, note).await?;
            let seen = self.seen(ticket, &rows)?;
            let pause = pauses.next();
            if let Verdict::Answer(answer) = seen.verdict(ticket, note, pause.is_none()) {
                return Ok(answer);
            }
            match pause {
                Some(pause) => sleep(pause).await,
                None => return Ok(Attempt::held()),
            }
        }
    }

    /// Reads what an attempt found, and remembers whether there is a row.
    fn seen(&self, ticket: &Ticket, rows: &[PgRow]) -> Result<Seen, BackendError> {
        let seen = Seen::read(rows).map_err(|_| unreadable("attempt"))?;
        if seen.known || seen.token.is_some() {
            self.known.set(&ticket.name, Known::of(&seen));
        } else {
            self.known.forget(&ticket.name);
        }
        Ok(seen)
    }

    /// As [`acquire`](Self::acquire), on a connection that keeps the row locked if it was granted.
    pub(super) async fn acquire_pinned(
        &self,
        pins: &Pins,
        ticket: &Ticket,
    ) -> Result<Attempt, BackendError> {
        if let Some(token) = pins.token(ticket.holder) {
            let renewed = pins.renew(std::slice::from_ref(ticket)).await;
            match renewed.into_iter().next() {
                Some(Ok(Renewal::Renewed { .. })) => {
                    return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
                }
                Some(Err(error)) => return Err(error),
                _ => {}
            }
        }
        // Dropped before its end, it closes the connection, and with it ends what was begun.
        let session = pins.session("attempt").await?;
        let note = self.push && ticket.enqueue;
        let known = self.known.get(&ticket.name);
        let mut calm = known.is_some_and(Known::is_calm);
        let mut pauses = pauses(ticket);
        let mut text = self.statements.acquire_pinned(ticket, note, calm);
        loop {
            let asked = pins.ask(&session, "attempt", text).await;
            let mut rows = asked.inspect_err(|error| pins.failed(error))?;
            let pinned = take_pin(&mut rows);
            if std::mem::take(&mut calm) {
                if let Some((token, transaction)) = given(&rows)?.zip(pinned) {
                    pins.hold(ticket, token, session, transaction);
                    return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
                }
                text = self.acquire_pinned_again(ticket, note);
                continue;
            }
            let mut seen = self.seen(ticket, &rows)?;
            if let Some((token, transaction)) = seen.token.and_then(row::token).zip(pinned) {
                pins.hold(ticket, token, session, transaction);
                return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
            }
            // Somebody has taken it over before it was locked.
            seen.token = None;
            let pause = pauses.next();
            let answer = match (seen.verdict(ticket, note, pause.is_none()), pause) {
                (Verdict::Answer(answer), _) => answer,
                (Verdict::Again, None) => Attempt::held(),
                (Verdict::Again, Some(pause)) => {
                    sleep(pause).await;
                    text = self.acquire_pinned_again(ticket, note);
                    continue;
                }
            };
            pins.rest(session, true);
            return Ok(answer);
        }
    }

    fn acquire_pinned_again(&self, ticket: &Ticket, note: bool) -> String {
        let again = self.statements.acquire_pinned(ticket, note, false);
        format!("ROLLBACK; {again}")
    }
}

/// The token that a short attempt was given, if it was.
fn given(rows: &[PgRow]) -> Result<Option<FencingToken>, BackendError> {
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let token = row.try_get(0).ok().and_then(row::token);
    token.map(Some).ok_or_else(|| unreadable("attempt"))
}

/// When to ask again: a waiter once, since it comes back anyway.
fn pauses(ticket: &Ticket) -> impl Iterator<Item = Duration> + Send {
    looks::pauses().take(if ticket.enqueue { 1 } else { usize::MAX })
}
