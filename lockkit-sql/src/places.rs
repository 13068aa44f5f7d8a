//! What this process knows of the places of its tickets: no I/O.

use std::time::Duration;

use lockkit_core::contract::{Attempt, Grant, Ticket};
use lockkit_core::store::waiters::{Entry, Waiters};
use lockkit_core::{Capabilities, HolderId, LossReason, Waiting};

use crate::driver::Columns;
use crate::values::token;

/// What this process knows of a ticket.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The key of the session that its hold ends with, or 0.
    pub(crate) session: i64,
    /// Whether it may have a place.
    pub(crate) waits: bool,
    /// What its last attempt found, if the lock was held.
    seen: Option<Seen>,
    /// What a notification said is the ticket's.
    granted: Option<Granted>,
}

impl Known {
    /// The keys of the sessions that its hold ends with, and a grant that is not believed yet; 0 is none.
    pub(crate) fn sessions(&self) -> [i64; 2] {
        [
            self.session,
            self.granted.map_or(0, |granted| granted.session),
        ]
    }
}

/// A grant that a release made, and notified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) token: i64,
    pub(crate) session: i64,
    /// When it ends, by the clock of the server.
    pub(crate) end: i64,
}

/// A lock that was not granted, as a ticket sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Whether another holds.
    pub(crate) held: bool,
    /// The rest of its lease in microseconds.
    pub(crate) left: i64,
    /// The rest of the ticket's place, and its end by the clock of the server.
    pub(crate) place: i64,
    pub(crate) end: i64,
    /// How many are before the ticket.
    pub(crate) before: i64,
    /// The token of the row, and how long ago it was made.
    pub(crate) token: i64,
    pub(crate) age: i64,
}

impl Seen {
    /// Reads it from the columns that follow the first, which are the same in all queries.
    pub(crate) fn read(row: &impl Columns) -> Self {
        let number = |column| row.number(column).unwrap_or(0);
        Self {
            held: row.truth(1),
            left: number(2),
            place: number(3),
            before: number(4),
            token: number(5),
            age: number(6),
            end: number(7),
        }
    }

    /// Whether the ticket must wait for another.
    pub(crate) const fn waits(&self) -> bool {
        self.held || self.before > 0
    }

    /// Whether the place of a ticket with this window must be renewed: with each look of a waiter.
    pub(crate) const fn needs_place(&self, window: i64) -> bool {
        window > 0 && self.place < window / 4 * 3
    }

    /// The result of an attempt that found another before the ticket. A waiter that nothing tells of its turn looks
    /// again after a quarter of the time that the lock has been held, and later if it is not the first.
    pub(crate) fn answer(&self, rules: &Capabilities) -> Attempt {
        let left = time(self.left).filter(|_| self.held);
        if rules.waiting == Waiting::Push {
            return Attempt::held_for(left);
        }
        let before = self.before + i64::from(self.held);
        let quarter = time(self.age / 4).unwrap_or_default();
        let pause = quarter.max(rules.poll.min) * u32::try_from(before.max(1)).unwrap_or(u32::MAX);
        let pause = pause.min(rules.poll.max);
        Attempt::held_for(Some(left.map_or(pause, |left| left.min(pause))))
    }
}

/// The ticket may have a place from now on: a request may be carried out without a reply.
pub(crate) fn may_have_place(waiters: &Waiters<Known>, ticket: &Ticket) {
    waiters.with(ticket.holder, |entry| entry.data.waits = true);
}

/// Whether the ticket may have a place.
pub(crate) fn has_waited(waiters: &Waiters<Known>, ticket: &Ticket) -> bool {
    waiters.with(ticket.holder, |entry| entry.data.waits) == Some(true)
}

/// The ticket was told to wait; what it saw, if it saw anything.
pub(crate) fn told_to_wait(waiters: &Waiters<Known>, ticket: &Ticket, seen: Option<&Seen>) {
    waiters.with(ticket.holder, |entry| {
        entry.data.waits |= seen.is_some_and(|seen| seen.place > 0);
        entry.data.seen = seen.copied();
        // A notification came while the attempt was under way.
        if entry.data.granted.is_some() {
            entry.restart();
            believe(entry);
        }
    });
}

/// A step that deletes the ticket's place says that the ticket holds.
pub(crate) fn told_to_hold(waiters: &Waiters<Known>, ticket: &Ticket) {
    waiters.with(ticket.holder, |entry| entry.data.waits = false);
}

/// A notification says that the ticket holds.
pub(crate) fn granted(waiters: &Waiters<Known>, holder: HolderId, granted: Granted) {
    waiters.with(holder, |entry| {
        entry.data.granted = Some(granted);
        believe(entry);
    });
}

/// The ticket's hold has ended: no notification of its grant counts any more.
pub(crate) fn lost(entry: &mut Entry<Known>, reason: LossReason) {
    entry.data.granted = None;
    entry.lost(reason);
}

/// Takes a grant for true that was made after the last attempt found the lock held. The client counts its lease from
/// the moment at which it sent that attempt: the reply tells how far that was from the end of the place at least.
fn believe(entry: &mut Entry<Known>) {
    let (Some(granted), Some(seen)) = (entry.data.granted, entry.data.seen) else {
        // The next attempt finds out.
        return entry.wake();
    };
    if granted.token <= seen.token {
        // Late: it is about a hold that has ended.
        entry.data.granted = None;
        return;
    }
    let lease = seen.place - (seen.end - granted.end);
    match (token(granted.token), time(lease)) {
        (Some(token), Some(lease)) if seen.end > 0 => {
            entry.data.waits = false;
            entry.data.session = granted.session;
            entry.granted(None, Grant::new(token, lease));
        }
        _ => entry.wake(),
    }
}

fn time(micros: i64) -> Option<Duration> {
    u64::try_from(micros).ok().map(Duration::from_micros)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use lockkit_core::contract::{Wake, Watch as _};
    use lockkit_core::{ClientId, LockName};

    use super::*;

    const PLACE: i64 = 3_000_000;
    const END: i64 = 1_000_000_000;

    fn granted(token: i64) -> Granted {
        Granted {
            token,
            session: 0,
            end: END - 1_000_000,
        }
    }

    pub(crate) fn ticket() -> Ticket {
        let holder = HolderId::new(ClientId::random(), 1);
        Ticket::new(LockName::new("a").unwrap(), holder, Duration::from_secs(30))
    }

    fn held_with(token: i64) -> Seen {
        Seen {
            held: true,
            place: PLACE,
            end: END,
            token,
            ..Seen::default()
        }
    }

    /// What a ticket is told that was granted tokens before and after a reply that found another with a token.
    async fn told(before: Option<i64>, found: i64, after: Option<i64>) -> Option<i64> {
        let (waiters, ticket) = (Arc::new(Waiters::<Known>::default()), ticket());
        let number = waiters.attempted(&ticket);
        let held = Ok(Attempt::held());
        may_have_place(&waiters, &ticket);
        told_to_wait(&waiters, &ticket, Some(&held_with(1)));
        waiters.answered(&ticket, number, &held);
        let number = waiters.attempted(&ticket);
        if let Some(token) = before {
            super::granted(&waiters, ticket.holder, granted(token));
        }
        told_to_wait(&waiters, &ticket, Some(&held_with(found)));
        waiters.answered(&ticket, number, &held);
        if let Some(token) = after {
            super::granted(&waiters, ticket.holder, granted(token));
        }
        let mut watch = waiters.watch(&ticket);
        let told = tokio::time::timeout(Duration::from_millis(10), watch.changed());
        match told.await {
            Ok(Ok(Wake::Granted(grant))) => {
                assert_eq!(
                    grant.ttl,
                    Duration::from_secs(2),
                    "it ends before its place"
                );
                Some(grant.token.get().cast_signed())
            }
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn late_grant_is_not_believed() {
        assert_eq!(told(None, 5, Some(6)).await, Some(6));
        assert_eq!(
            told(Some(6), 5, None).await,
            Some(6),
            "made after the reply"
        );
        assert_eq!(told(Some(6), 7, None).await, None, "another holds since");
        assert_eq!(told(None, 7, Some(6)).await, None, "another holds since");
    }

    #[tokio::test]
    async fn lost_grant_does_not_come_back() {
        let (waiters, ticket) = (Arc::new(Waiters::<Known>::default()), ticket());
        let number = waiters.attempted(&ticket);
        may_have_place(&waiters, &ticket);
        super::granted(&waiters, ticket.holder, granted(6));
        waiters.with(ticket.holder, |entry| {
            lost(entry, LossReason::SessionEnded);
        });
        // The answer to an attempt that was under way.
        told_to_wait(&waiters, &ticket, Some(&held_with(5)));
        waiters.answered(&ticket, number, &Ok(Attempt::held()));
        let mut watch = waiters.watch(&ticket);
        let lost = Wake::Lost(LossReason::SessionEnded);
        assert_eq!(
            format!("{:?}", watch.changed().await.unwrap()),
            format!("{lost:?}")
        );
    }

    #[test]
    fn only_a_ticket_that_may_have_a_place_is_withdrawn() {
        let (waiters, ticket) = (Waiters::<Known>::default(), ticket());
        waiters.attempted(&ticket);
        assert!(!has_waited(&waiters, &ticket));
        may_have_place(&waiters, &ticket);
        assert!(has_waited(&waiters, &ticket));
        told_to_wait(&waiters, &ticket, Some(&held_with(1)));
        super::granted(&waiters, ticket.holder, granted(2));
        assert!(!has_waited(&waiters, &ticket), "its place became the hold");
        may_have_place(&waiters, &ticket);
        told_to_hold(&waiters, &ticket);
        assert!(!has_waited(&waiters, &ticket));
    }

    #[test]
    fn first_waiter_looks_soonest() {
        let rules = Capabilities::new();
        let pause = |before, age_in_ms: i64| {
            let seen = Seen {
                before,
                age: age_in_ms * 1000,
                ..held_with(1)
            };
            let left = Seen {
                left: i64::MAX,
                ..seen
            };
            match left.answer(&rules) {
                Attempt::Held { retry_after, .. } => retry_after.unwrap().as_millis(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(pause(0, 1), rules.poll.min.as_millis());
        assert_eq!(pause(0, 400), 100);
        assert_eq!(pause(2, 400), 300);
        assert_eq!(pause(0, 100_000), rules.poll.max.as_millis());
    }
}
