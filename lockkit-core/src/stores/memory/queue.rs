//! The waiters of one lock, in the order of their first attempts.

use std::collections::VecDeque;

use super::globals::{Globals, Session};
use crate::contract::{HolderId, LossReason, Mode, Ticket};
use crate::time::clock::Moment;

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    pub(super) session: Session,
    /// Its last heartbeat.
    seen: Moment,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn has(&self, holder: HolderId) -> bool {
        self.holders().any(|waits| waits == holder)
    }

    /// Whether no other ticket is before `holder`.
    pub(super) fn lets_through(&self, holder: HolderId) -> bool {
        let first = self.waiters.front();
        first.is_none_or(|first| first.ticket.holder == holder)
    }

    /// Whether a ticket waits that no other may hold beside.
    pub(super) fn has_exclusive(&self) -> bool {
        let mut waiters = self.waiters.iter();
        waiters.any(|waiter| waiter.ticket.mode.is_exclusive())
    }

    pub(super) fn holders(&self) -> impl Iterator<Item = HolderId> {
        self.waiters.iter().map(|waiter| waiter.ticket.holder)
    }

    /// The heartbeat of a place.
    pub(super) fn beat(&mut self, ticket: &Ticket, now: Moment) {
        let mut waiters = self.waiters.iter_mut();
        if let Some(waiter) = waiters.find(|waiter| waiter.ticket.holder == ticket.holder) {
            waiter.seen = now;
            waiter.ticket.ttl = ticket.ttl;
        }
    }

    pub(super) fn join(&mut self, ticket: &Ticket, session: Session, now: Moment) {
        self.waiters.push_back(Waiter {
            ticket: ticket.clone(),
            session,
            seen: now,
        });
    }

    pub(super) fn leave(&mut self, holder: HolderId) {
        self.waiters.retain(|waiter| waiter.ticket.holder != holder);
    }

    /// Takes the first waiter out, if a ticket of its mode may hold now.
    pub(super) fn pop_if(&mut self, fits: impl FnOnce(Mode) -> bool) -> Option<Waiter> {
        let first = self.waiters.front()?;
        if fits(first.ticket.mode) {
            self.waiters.pop_front()
        } else {
            None
        }
    }

    /// Drops waiters without a heartbeat: all of them, or those at the head where places count.
    pub(super) fn drop_dead(&mut self, globals: &mut Globals) {
        // A session's heartbeat is that of all its places.
        if self.waiters.is_empty() || globals.in_sessions() {
            return;
        }
        let everywhere = globals.barging();
        let mut head = true;
        self.waiters.retain(|waiter| {
            let dead = waiter.seen + globals.window(waiter.ticket.ttl) <= globals.now;
            let drop = dead && (head || everywhere);
            if drop {
                globals.lose(waiter.ticket.holder, LossReason::Expired);
            }
            head &= drop;
            !drop
        });
    }

    /// Drops the waiters that came through `session`.
    pub(super) fn end_session(&mut self, session: Session, globals: &mut Globals) {
        self.waiters.retain(|waiter| {
            let ended = waiter.session == session;
            if ended {
                globals.lose(waiter.ticket.holder, LossReason::SessionEnded);
            }
            !ended
        });
    }
}
