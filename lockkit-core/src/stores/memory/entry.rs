//! One lock: the rules of the contract as functions of its state and the time.
//!
//! An entry without a holder and without waiters is the same as none, so that every step begins
//! with an entry, and a blank one is thrown away after it.

use std::sync::Arc;

use super::globals::{Globals, Session};
use super::queue::Queue;
use crate::contract::{
    Attempt, FencingToken, Grant, Holder, HolderId, LockName, LockState, LossReason, Mode, Release,
    Renewal, Ticket,
};
use crate::store::waiters::{self, TicketWatch};
use crate::time::clock::Moment;

#[derive(Debug, Default)]
pub(super) struct Entry {
    holds: Vec<Hold>,
    queue: Queue,
}

#[derive(Debug)]
struct Hold {
    holder: HolderId,
    label: Option<Arc<str>>,
    note: Option<String>,
    mode: Mode,
    session: Session,
    token: FencingToken,
    since: Moment,
    until: Moment,
}

/// The ticket was released before: it is never granted any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WasReleased;

impl Entry {
    pub(super) fn is_blank(&self) -> bool {
        self.holds.is_empty() && self.queue.is_empty()
    }

    pub(super) fn holds(&self) -> usize {
        self.holds.len()
    }

    pub(super) fn waiters(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn knows(&self, holder: HolderId) -> bool {
        self.holds.iter().any(|hold| hold.holder == holder) || self.queue.has(holder)
    }

    pub(super) fn attempt(
        &mut self,
        ticket: &Ticket,
        session: Session,
        globals: &mut Globals,
    ) -> Result<Attempt, WasReleased> {
        let ended = self.expire(globals);
        if let Some(grant) = self.repeat(ticket, globals) {
            if ended {
                self.pass_on(globals);
            }
            return Ok(Attempt::Granted(grant));
        }
        if globals.tombstones.contains(ticket.holder) {
            return Err(WasReleased);
        }
        self.queue.beat(ticket, globals.now);
        self.queue.drop_dead(globals);
        // Where waiters race, they are woken only when a hold has ended.
        let passes_on = ended || !globals.barging();
        if passes_on && !self.admits(ticket, globals) {
            // A newcomer never overtakes; it finds the lock free for those before it.
            self.pass_on(globals);
            if let Some(grant) = self.repeat(ticket, globals) {
                return Ok(Attempt::Granted(grant));
            }
        }
        if self.admits(ticket, globals) {
            self.queue.leave(ticket.holder);
            let grant = self.take(ticket, session, globals);
            if passes_on {
                self.pass_on(globals);
            }
            return Ok(Attempt::Granted(grant));
        }
        if ticket.enqueue {
            self.enqueue(ticket, session, globals);
        }
        Ok(self.held(globals))
    }

    /// A holder asks again: its lease begins anew, but never becomes shorter, and its token stays. INV-5, INV-6.
    fn repeat(&mut self, ticket: &Ticket, globals: &Globals) -> Option<Grant> {
        let hold = self.hold_of(ticket.holder)?;
        hold.until = hold.until.max(globals.lease_end(ticket.ttl));
        Some(globals.grant(hold.token, hold.session, ticket.ttl))
    }

    fn hold_of(&mut self, holder: HolderId) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|hold| hold.holder == holder)
    }

    /// Whether a ticket may hold now, although others may wait.
    fn admits(&self, ticket: &Ticket, globals: &Globals) -> bool {
        let in_turn = if globals.barging() {
            ticket.mode.is_exclusive() || !self.queue.has_exclusive()
        } else {
            self.queue.lets_through(ticket.holder)
        };
        in_turn && fits(ticket.mode, &self.holds)
    }

    fn take(&mut self, ticket: &Ticket, session: Session, globals: &mut Globals) -> Grant {
        let token = globals.next_token();
        self.holds.push(Hold {
            holder: ticket.holder,
            label: ticket.label.clone(),
            note: None,
            mode: ticket.mode,
            session,
            token,
            since: globals.now,
            until: globals.lease_end(ticket.ttl),
        });
        globals.grant(token, session, ticket.ttl)
    }

    fn enqueue(&mut self, ticket: &Ticket, session: Session, globals: &mut Globals) {
        if self.knows(ticket.holder) {
            return;
        }
        self.queue.join(ticket, session, globals.now);
        // In the same step as the place: no wake-up can come earlier.
        if globals.pushes() || globals.rules.tells_loss {
            globals.waiters.attempted(ticket);
            // A grant that was not read has ended since.
            globals.waiters.with(ticket.holder, waiters::Entry::restart);
        }
    }

    fn held(&self, globals: &Globals) -> Attempt {
        let holds = self.holds.iter().filter(|_| !globals.in_sessions());
        Attempt::held_for(holds.map(|hold| hold.until.since(globals.now)).min())
    }

    /// Ends the holds whose leases have ended, and returns whether there was one. The next step on the lock
    /// does this first.
    fn expire(&mut self, globals: &mut Globals) -> bool {
        let now = globals.now;
        self.end_holds(LossReason::Expired, globals, |hold| hold.until <= now)
    }

    /// Ends some holds, and returns whether there was one.
    fn end_holds(
        &mut self,
        reason: LossReason,
        globals: &mut Globals,
        ends: impl Fn(&Hold) -> bool,
    ) -> bool {
        let before = self.holds.len();
        self.holds.retain(|hold| {
            let ends = ends(hold);
            if ends {
                globals.lose(hold.holder, reason);
            }
            !ends
        });
        self.holds.len() < before
    }

    /// Lets in the first waiters who live, as many as fit; or wakes all where they race.
    fn pass_on(&mut self, globals: &mut Globals) {
        self.queue.drop_dead(globals);
        if !globals.pushes() {
            return;
        }
        if globals.barging() {
            if !has_exclusive(&self.holds) {
                for holder in self.queue.holders() {
                    globals.tell(holder, waiters::Entry::wake);
                }
            }
            return;
        }
        while let Some(next) = self.queue.pop_if(|mode| fits(mode, &self.holds)) {
            // A dead waiter costs one window, not its whole lease.
            let window = globals.window(next.ticket.ttl);
            let ticket = next.ticket.with_ttl(window);
            let grant = self.take(&ticket, next.session, globals);
            globals.tell(ticket.holder, |entry| entry.granted(None, grant));
        }
    }

    /// Opens the wake-ups of a ticket. One that the store does not know gets one at once.
    pub(super) fn watch(
        &mut self,
        ticket: &Ticket,
        session: Session,
        globals: &mut Globals,
    ) -> TicketWatch {
        self.settle(globals);
        let known = self.knows(ticket.holder);
        let waiters = &globals.waiters;
        if known && waiters.with(ticket.holder, |_| ()).is_none() {
            // It got the lock at once, so that nothing was kept of it yet.
            waiters.attempted(ticket);
        }
        let watch = waiters.watch(ticket);
        waiters.with(ticket.holder, |entry| {
            if known {
            } else if !globals.rules.tells_loss {
                entry.wake();
            } else if globals.last_keep_alive(session).is_none() {
                entry.lost(LossReason::SessionEnded);
            } else {
                entry.lost(LossReason::Superseded);
            }
        });
        watch
    }

    /// Ends what has expired. To inspect the lock does no more: it grants nothing.
    pub(super) fn settle(&mut self, globals: &mut Globals) {
        self.expire(globals);
        self.queue.drop_dead(globals);
    }

    pub(super) fn release(&mut self, holder: HolderId, globals: &mut Globals) -> Release {
        globals.tombstones.insert(holder);
        globals.waiters.forget(holder);
        self.expire(globals);
        let before = self.holds.len();
        self.holds.retain(|hold| hold.holder != holder);
        let held = self.holds.len() < before;
        if !held {
            self.queue.leave(holder);
        }
        self.pass_on(globals);
        if held {
            Release::Released
        } else {
            Release::NotHeld
        }
    }

    pub(super) fn renew(&mut self, ticket: &Ticket, globals: &mut Globals) -> Renewal {
        let ended = self.expire(globals);
        let renewed = self.repeat(ticket, globals);
        if ended || renewed.is_none() {
            self.pass_on(globals);
        }
        renewed.map_or(Renewal::NotHeld, |Grant { since, ttl, .. }| {
            Renewal::Renewed { since, ttl }
        })
    }

    /// Gives a hold a note; returns whether there is one.
    pub(super) fn note(&mut self, ticket: &Ticket, text: &str, globals: &mut Globals) -> bool {
        self.settle(globals);
        let hold = self.hold_of(ticket.holder);
        hold.map(|hold| hold.note = Some(text.to_owned())).is_some()
    }

    /// Makes the hold of `from` that of `ticket`.
    pub(super) fn adopt(
        &mut self,
        from: HolderId,
        ticket: &Ticket,
        session: Session,
        globals: &mut Globals,
    ) -> Result<Attempt, WasReleased> {
        self.expire(globals);
        if globals.tombstones.contains(ticket.holder) {
            return Err(WasReleased);
        }
        let mut others = self.holds.iter().filter(|hold| hold.holder != from);
        let fits = match others.next() {
            Some(other) => ticket
                .mode
                .fits(1 + count(others), other.mode.is_exclusive()),
            None => true,
        };
        if fits && let Some(hold) = self.hold_of(from) {
            globals.tombstones.insert(from);
            hold.holder = ticket.holder;
            hold.label.clone_from(&ticket.label);
            hold.mode = ticket.mode;
            hold.session = session;
        }
        let grant = self.repeat(ticket, globals);
        // A hold that shares now lets others in.
        self.pass_on(globals);
        Ok(grant.map_or_else(|| self.held(globals), Attempt::Granted))
    }

    /// Ends the holds of all tickets, and describes the lock as it was.
    pub(super) fn break_lock(
        &mut self,
        name: &LockName,
        globals: &mut Globals,
    ) -> Option<LockState> {
        self.settle(globals);
        let was = (self.holds() > 0).then(|| self.describe(name, globals));
        self.end_holds(LossReason::Superseded, globals, |_| true);
        self.pass_on(globals);
        was
    }

    /// Ends all that came through `session`.
    pub(super) fn end_session(&mut self, session: Session, globals: &mut Globals) {
        self.queue.end_session(session, globals);
        self.end_holds(LossReason::SessionEnded, globals, |hold| {
            hold.session == session
        });
        self.pass_on(globals);
    }

    /// Ends all of it at once, as if it had been deleted by hand.
    pub(super) fn wipe(self, globals: &mut Globals) {
        let holders = self.holds.iter().map(|hold| hold.holder);
        for holder in holders.chain(self.queue.holders()) {
            globals.lose(holder, LossReason::Superseded);
        }
    }

    pub(super) fn describe(&self, name: &LockName, globals: &Globals) -> LockState {
        let state = LockState {
            waiters: u32::try_from(self.queue.len()).ok(),
            ..LockState::new(name.clone())
        };
        let holders = self.holds.iter().map(|hold| {
            let session = globals.last_keep_alive(hold.session);
            let until = session.map_or(hold.until, |last| last + globals.rules.max_ttl);
            Holder {
                id: hold.holder.to_string(),
                label: hold.label.as_deref().map(str::to_owned),
                mode: Some(hold.mode),
                token: Some(hold.token),
                held_for: Some(globals.now.since(hold.since)),
                remaining: Some(until.since(globals.now)),
                note: hold.note.clone(),
            }
        });
        holders.fold(state, LockState::with_holder)
    }
}

fn has_exclusive(holds: &[Hold]) -> bool {
    holds.iter().any(|hold| hold.mode.is_exclusive())
}

/// Whether a ticket may hold beside these.
fn fits(mode: Mode, holds: &[Hold]) -> bool {
    mode.fits(count(holds.iter()), has_exclusive(holds))
}

fn count<'a>(holds: impl Iterator<Item = &'a Hold>) -> u32 {
    u32::try_from(holds.count()).unwrap_or(u32::MAX)
}
