//! One lock: the rules of the contract as functions of its state and the time.
//!
//! An entry without a holder and without waiters is the same as none, so that every step begins
//! with an entry, and a blank one is thrown away after it.

use std::time::Duration;

use super::globals::{Globals, Session};
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
    fn prolong(&mut self, ttl: Duration, now: Moment, globals: &Globals) {
        let end = globals.lease_end(now, ttl);
        self.until = self.until.max(end);
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
        globals: &mut Globals,
    ) -> Result<Attempt, WasReleased> {
        self.expire(now, globals);
        if let Some(grant) = self.repeat(ticket, now, globals) {
            return Ok(Attempt::Granted(grant));
        }
        if globals.tombstones.contains(ticket.holder) {
            return Err(WasReleased);
        }
        self.queue.beat(ticket, now);
        self.queue.drop_dead(now, globals);
        if self.hold.is_none() {
            if globals.barging() || self.queue.lets_through(ticket.holder) {
                self.queue.leave(ticket.holder);
                let grant = self.take(ticket.holder, session, ticket.ttl, now, globals);
                return Ok(Attempt::Granted(grant));
            }
            // A newcomer never overtakes; it finds the lock free for the first waiter.
            self.pass_on(now, globals);
        }
        if ticket.enqueue {
            self.enqueue(ticket, session, now, globals);
        }
        Ok(self.held(now, globals))
    }

    /// A holder asks again: its lease begins anew, but never becomes shorter, and its token stays. INV-5, INV-6.
    fn repeat(&mut self, ticket: &Ticket, now: Moment, globals: &Globals) -> Option<Grant> {
        let hold = self.hold.as_mut()?;
        if hold.holder != ticket.holder {
            return None;
        }
        hold.prolong(ticket.ttl, now, globals);
        Some(globals.grant(hold.token, hold.session, ticket.ttl))
    }

    fn take(
        &mut self,
        holder: HolderId,
        session: Session,
        ttl: Duration,
        now: Moment,
        globals: &mut Globals,
    ) -> Grant {
        let token = globals.next_token();
        self.hold = Some(Hold {
            holder,
            session,
            token,
            until: globals.lease_end(now, ttl),
            provisional: false,
        });
        globals.grant(token, session, ttl)
    }

    fn enqueue(&mut self, ticket: &Ticket, session: Session, now: Moment, globals: &mut Globals) {
        if !globals.keeps_waiters() || self.knows(ticket.holder) {
            return;
        }
        self.queue.join(ticket, session, now);
        // In the same step as the place: no wake-up can come earlier.
        if globals.pushes() || globals.rules.tells_loss {
            globals.waiters.attempted(ticket);
        }
    }

    fn held(&self, now: Moment, globals: &Globals) -> Attempt {
        let hold = self.hold.as_ref().filter(|_| !globals.in_sessions());
        Attempt::held_for(hold.map(|hold| hold.until.since(now)))
    }

    /// Ends a hold whose lease has ended. The next step on the lock does this first.
    fn expire(&mut self, now: Moment, globals: &mut Globals) {
        if let Some(hold) = self.hold.take_if(|hold| hold.until <= now) {
            globals.lose(hold.holder, LossReason::Expired);
        }
    }

    /// Passes a free lock to the first waiter who lives, or wakes all of them where they race.
    fn pass_on(&mut self, now: Moment, globals: &mut Globals) {
        if self.queue.is_empty() || self.hold.is_some() {
            return;
        }
        self.queue.drop_dead(now, globals);
        if !globals.pushes() {
            return;
        }
        if globals.barging() {
            for holder in self.queue.holders() {
                globals.push(holder, Wake::Retry);
            }
        } else if let Some(next) = self.queue.pop() {
            // A dead waiter costs one window, not its whole lease.
            let ttl = globals.window(next.ttl);
            let grant = self.take(next.holder, next.session, ttl, now, globals);
            if let Some(hold) = &mut self.hold {
                hold.provisional = true;
            }
            globals.push(next.holder, Wake::Granted(grant));
        }
    }

    /// Ends what has expired. To inspect the lock does no more: it grants nothing.
    pub(super) fn settle(&mut self, now: Moment, globals: &mut Globals) {
        self.expire(now, globals);
        self.queue.drop_dead(now, globals);
    }

    pub(super) fn release(
        &mut self,
        ticket: &Ticket,
        now: Moment,
        globals: &mut Globals,
    ) -> Release {
        globals.tombstones.insert(ticket.holder);
        globals.waiters.forget(ticket.holder);
        self.expire(now, globals);
        let ended = self.hold.take_if(|hold| hold.holder == ticket.holder);
        if ended.is_none() {
            self.queue.leave(ticket.holder);
        }
        self.pass_on(now, globals);
        if ended.is_some() {
            Release::Released
        } else {
            Release::NotHeld
        }
    }

    pub(super) fn renew(&mut self, ticket: &Ticket, now: Moment, globals: &mut Globals) -> Renewal {
        self.expire(now, globals);
        match &mut self.hold {
            Some(hold) if hold.holder == ticket.holder => {
                hold.prolong(ticket.ttl, now, globals);
                Renewal::Renewed {
                    since: globals.last_keep_alive(hold.session),
                    ttl: globals.lease_of(ticket.ttl),
                }
            }
            _ => {
                self.pass_on(now, globals);
                Renewal::NotHeld
            }
        }
    }

    /// Ends the hold of any ticket.
    pub(super) fn break_hold(&mut self, now: Moment, globals: &mut Globals) {
        if let Some(hold) = self.hold.take() {
            globals.lose(hold.holder, LossReason::Superseded);
        }
        self.pass_on(now, globals);
    }

    /// Ends all that came through `session`.
    pub(super) fn end_session(&mut self, session: Session, now: Moment, globals: &mut Globals) {
        self.queue.end_session(session, globals);
        if let Some(hold) = self.hold.take_if(|hold| hold.session == session) {
            globals.lose(hold.holder, LossReason::SessionEnded);
        }
        self.pass_on(now, globals);
    }

    /// Ends all of it at once, as if it had been deleted by hand.
    pub(super) fn wipe(self, globals: &mut Globals) {
        let holder = self.hold.map(|hold| hold.holder);
        for holder in holder.into_iter().chain(self.queue.holders()) {
            globals.lose(holder, LossReason::Superseded);
        }
    }

    pub(super) fn describe(&self, name: &LockName, now: Moment, globals: &Globals) -> LockState {
        let waiters = u32::try_from(self.queue.len()).ok();
        let state =
            LockState::new(name.clone()).with_waiters(waiters.filter(|_| globals.keeps_waiters()));
        let Some(hold) = &self.hold else { return state };
        let session = globals.last_keep_alive(hold.session);
        let until = session.map_or(hold.until, |last| last + globals.rules.max_ttl);
        state
            .with_holder(hold.holder.to_string())
            .with_token(Some(hold.token))
            .with_remaining(Some(until.since(now)))
    }
}
