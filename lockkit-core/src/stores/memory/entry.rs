//! One lock: the rules of the contract as functions of its state and the time.
//!
//! An entry without a holder and without waiters is the same as none, so that every step begins
//! with an entry, and a blank one is thrown away after it.

use std::time::Duration;

use super::books::{Books, Session};
use super::mutant::StoreMutant;
use super::queue::Queue;
use crate::contract::error::LossReason;
use crate::contract::holder::HolderId;
use crate::contract::name::LockName;
use crate::contract::token::FencingToken;
use crate::contract::{Attempt, Grant, LockState, Release, Renewal, Ticket, Wake};
use crate::time::clock::Moment;

#[derive(Debug, Default)]
pub(super) struct Entry {
    hold: Option<Hold>,
    queue: Queue,
}

#[derive(Debug)]
struct Hold {
    holder: HolderId,
    session: Session,
    token: FencingToken,
    until: Moment,
    /// Pushed to a waiter that has not answered yet.
    provisional: bool,
}

impl Hold {
    /// Begins the lease anew, but makes it no shorter than it is.
    fn prolong(&mut self, ttl: Duration, now: Moment, books: &Books) {
        let end = books.lease_end(now, ttl);
        if end > self.until || books.broken(StoreMutant::LeaseShortened) {
            self.until = end;
        }
        self.provisional = false;
    }
}

/// The ticket was released before: it is never granted any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WasReleased;

impl Entry {
    pub(super) fn is_blank(&self) -> bool {
        self.hold.is_none() && self.queue.is_empty()
    }

    pub(super) fn holds(&self) -> bool {
        self.hold.is_some()
    }

    pub(super) fn waiters(&self) -> usize {
        self.queue.len()
    }

    /// Whether the ticket holds or waits.
    pub(super) fn knows(&self, holder: HolderId) -> bool {
        self.is_held_by(holder) || self.queue.has(holder)
    }

    fn is_held_by(&self, holder: HolderId) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.holder == holder)
    }

    pub(super) fn attempt(
        &mut self,
        ticket: &Ticket,
        session: Session,
        now: Moment,
        books: &mut Books,
    ) -> Result<Attempt, WasReleased> {
        self.expire(now, books);
        if let Some(grant) = self.repeat(ticket, now, books) {
            return Ok(Attempt::Granted(grant));
        }
        if books.tombstones.contains(ticket.holder) && !books.broken(StoreMutant::GhostAfterRelease)
        {
            return Err(WasReleased);
        }
        let waits = self.queue.beat(ticket, now);
        self.queue.drop_dead(now, books);
        let blind = waits && books.broken(StoreMutant::RecheckFindsNothing);
        if self.hold.is_none() && !blind {
            if books.barging() || self.queue.lets_through(ticket.holder) {
                self.queue.leave(ticket.holder);
                let grant = self.take(ticket.holder, session, ticket.ttl, now, books);
                return Ok(Attempt::Granted(grant));
            }
            // A newcomer never overtakes; it finds the lock free for the one who stands first.
            self.pass_on(now, books);
        }
        if ticket.enqueue || books.broken(StoreMutant::TryLeavesQueueEntry) {
            self.enqueue(ticket, session, now, books);
        }
        Ok(self.held(now, books))
    }

    /// A holder asks again: its lease begins anew, but never becomes shorter, and its token stays. INV-5, INV-6.
    fn repeat(&mut self, ticket: &Ticket, now: Moment, books: &mut Books) -> Option<Grant> {
        let hold = self.hold.as_mut()?;
        if hold.holder != ticket.holder {
            return None;
        }
        if hold.provisional && books.broken(StoreMutant::RecheckFindsNothing) {
            return None;
        }
        if books.broken(StoreMutant::TokenRaisedOnRepeat) {
            hold.token = books.next_token();
        }
        hold.prolong(ticket.ttl, now, books);
        Some(books.grant(hold.token, hold.session, ticket.ttl))
    }

    fn take(
        &mut self,
        holder: HolderId,
        session: Session,
        ttl: Duration,
        now: Moment,
        books: &mut Books,
    ) -> Grant {
        let token = books.next_token();
        self.hold = Some(Hold {
            holder,
            session,
            token,
            until: books.lease_end(now, ttl),
            provisional: false,
        });
        books.grant(token, session, ttl)
    }

    fn enqueue(&mut self, ticket: &Ticket, session: Session, now: Moment, books: &mut Books) {
        if !books.keeps_waiters() || self.knows(ticket.holder) {
            return;
        }
        self.queue.join(ticket, session, now);
        // In the same step as the place: no wake-up can come before somebody keeps it.
        if books.pushes() || books.rules.tells_loss {
            books.waiters.attempted(ticket);
        }
    }

    fn held(&self, now: Moment, books: &Books) -> Attempt {
        let hold = self.hold.as_ref().filter(|_| !books.in_sessions());
        Attempt::held_for(hold.map(|hold| hold.until.since(now)))
    }

    /// Ends a hold whose lease has ended. Whoever touches the lock next does this first.
    fn expire(&mut self, now: Moment, books: &mut Books) {
        if let Some(hold) = self.hold.take_if(|hold| hold.until <= now) {
            books.lose(hold.holder, LossReason::Expired);
        }
    }

    /// Passes a free lock to the first waiter who lives, or wakes all of them where they race.
    fn pass_on(&mut self, now: Moment, books: &mut Books) {
        if self.queue.is_empty() || self.hold.is_some() || books.broken(StoreMutant::WakeUpLost) {
            return;
        }
        self.queue.drop_dead(now, books);
        if !books.pushes() {
            return;
        }
        if books.barging() {
            for holder in self.queue.holders() {
                books.push(holder, Wake::Retry);
            }
        } else if let Some(next) = self.queue.pop() {
            // A dead waiter costs one window, not its whole lease.
            let ttl = if books.broken(StoreMutant::PushedGrantKeepsFullTtl) {
                next.ttl
            } else {
                books.window(next.ttl)
            };
            let grant = self.take(next.holder, next.session, ttl, now, books);
            if let Some(hold) = &mut self.hold {
                hold.provisional = true;
            }
            books.push(next.holder, Wake::Granted(grant));
        }
    }

    /// Ends what has ended. A look at the lock does no more: it gives it to nobody.
    pub(super) fn settle(&mut self, now: Moment, books: &mut Books) {
        self.expire(now, books);
        self.queue.drop_dead(now, books);
    }

    pub(super) fn release(&mut self, ticket: &Ticket, now: Moment, books: &mut Books) -> Release {
        books.tombstones.insert(ticket.holder);
        books.waiters.forget(ticket.holder);
        self.expire(now, books);
        let careless = books.broken(StoreMutant::ReleaseWithoutOwnerCheck);
        let ended = self
            .hold
            .take_if(|hold| hold.holder == ticket.holder || careless);
        if ended.is_none() {
            self.queue.leave(ticket.holder);
        }
        let withdrawn = ended.as_ref().is_none_or(|hold| hold.provisional);
        if !(withdrawn && books.broken(StoreMutant::WithdrawalWakesNobody)) {
            self.pass_on(now, books);
        }
        if ended.is_some() {
            Release::Released
        } else {
            Release::NotHeld
        }
    }

    pub(super) fn renew(
        &mut self,
        ticket: &Ticket,
        session: Session,
        now: Moment,
        books: &mut Books,
    ) -> Renewal {
        self.expire(now, books);
        let free = self.hold.is_none();
        if free && books.broken(StoreMutant::RenewalRecreates) {
            self.take(ticket.holder, session, ticket.ttl, now, books);
        }
        match &mut self.hold {
            Some(hold) if hold.holder == ticket.holder => {
                hold.prolong(ticket.ttl, now, books);
                Renewal::Renewed {
                    since: books.last_keep_alive(hold.session),
                    ttl: books.lease_of(ticket.ttl),
                }
            }
            _ => {
                self.pass_on(now, books);
                Renewal::NotHeld
            }
        }
    }

    /// Ends the hold, whoever has it.
    pub(super) fn break_hold(&mut self, now: Moment, books: &mut Books) {
        if let Some(hold) = self.hold.take() {
            books.lose(hold.holder, LossReason::Superseded);
        }
        self.pass_on(now, books);
    }

    /// Ends all that came through `session`.
    pub(super) fn end_session(&mut self, session: Session, now: Moment, books: &mut Books) {
        self.queue.end_session(session, books);
        if let Some(hold) = self.hold.take_if(|hold| hold.session == session) {
            books.lose(hold.holder, LossReason::SessionEnded);
        }
        self.pass_on(now, books);
    }

    /// Ends all of it at once, as if it had been deleted by hand.
    pub(super) fn wipe(self, books: &mut Books) {
        let holder = self.hold.map(|hold| hold.holder);
        for holder in holder.into_iter().chain(self.queue.holders()) {
            books.lose(holder, LossReason::Superseded);
        }
    }

    pub(super) fn describe(&self, name: &LockName, now: Moment, books: &Books) -> LockState {
        let waiters = u32::try_from(self.queue.len()).ok();
        let state =
            LockState::new(name.clone()).with_waiters(waiters.filter(|_| books.keeps_waiters()));
        let Some(hold) = &self.hold else { return state };
        let session = books.last_keep_alive(hold.session);
        let until = session.map_or(hold.until, |last| last + books.rules.max_ttl);
        state
            .with_holder(hold.holder.to_string())
            .with_token(Some(hold.token))
            .with_remaining(Some(until.since(now)))
    }
}
