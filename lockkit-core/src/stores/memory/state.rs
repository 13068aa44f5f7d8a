//! The whole store as a state machine: every function is one server step at a given time.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use super::entry::{Entry, WasReleased};
use super::globals::{Globals, Session};
use crate::contract::{
    Attempt, Capabilities, HolderId, LockName, LockState, LossReason, Release, Renewal, Ticket,
};
use crate::store::waiters::TicketWatch;
use crate::time::clock::Moment;

#[derive(Debug)]
pub(super) struct State {
    locks: HashMap<LockName, Entry>,
    pub(super) globals: Globals,
}

impl State {
    pub(super) fn new(rules: Capabilities) -> Self {
        Self {
            locks: HashMap::new(),
            globals: Globals::new(rules),
        }
    }

    /// Carries out one step on one lock; a lock that is blank after it is not kept.
    fn step<T>(
        &mut self,
        name: &LockName,
        now: Moment,
        step: impl FnOnce(&mut Entry, &mut Globals) -> T,
    ) -> T {
        self.end_silent_sessions(now);
        match self.locks.entry(name.clone()) {
            Slot::Occupied(mut slot) => {
                let answer = step(slot.get_mut(), &mut self.globals);
                if slot.get().is_blank() {
                    slot.remove();
                }
                answer
            }
            Slot::Vacant(slot) => {
                let mut entry = Entry::default();
                let answer = step(&mut entry, &mut self.globals);
                if !entry.is_blank() {
                    slot.insert(entry);
                }
                answer
            }
        }
    }

    pub(super) fn attempt(
        &mut self,
        ticket: &Ticket,
        session: Session,
        now: Moment,
    ) -> Result<Attempt, WasReleased> {
        self.step(&ticket.name, now, |entry, globals| {
            globals.keep_alive(session, now);
            entry.attempt(ticket, session, now, globals)
        })
    }

    pub(super) fn renew(&mut self, ticket: &Ticket, session: Session, now: Moment) -> Renewal {
        self.step(&ticket.name, now, |entry, globals| {
            globals.keep_alive(session, now);
            entry.renew(ticket, now, globals)
        })
    }

    pub(super) fn release(&mut self, ticket: &Ticket, now: Moment) -> Release {
        self.step(&ticket.name, now, |entry, globals| {
            entry.release(ticket, now, globals)
        })
    }

    pub(super) fn note(&mut self, ticket: &Ticket, text: &str, now: Moment) -> bool {
        self.step(&ticket.name, now, |entry, globals| {
            entry.note(ticket, text, now, globals)
        })
    }

    pub(super) fn adopt(
        &mut self,
        from: HolderId,
        ticket: &Ticket,
        session: Session,
        now: Moment,
    ) -> Result<Attempt, WasReleased> {
        self.step(&ticket.name, now, |entry, globals| {
            globals.keep_alive(session, now);
            entry.adopt(from, ticket, session, now, globals)
        })
    }

    /// Opens the wake-ups of a ticket. One that the store does not know gets one at once.
    pub(super) fn watch(&mut self, ticket: &Ticket, session: Session, now: Moment) -> TicketWatch {
        self.step(&ticket.name, now, |entry, globals| {
            entry.settle(now, globals);
            let known = entry.knows(ticket.holder);
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
        })
    }

    pub(super) fn inspect(&mut self, name: &LockName, now: Moment) -> Option<LockState> {
        self.step(name, now, |entry, globals| {
            entry.settle(now, globals);
            (!entry.is_blank()).then(|| entry.describe(name, now, globals))
        })
    }

    pub(super) fn break_lock(&mut self, name: &LockName, now: Moment) -> Option<LockState> {
        self.step(name, now, |entry, globals| {
            entry.settle(now, globals);
            let was = (entry.holds() > 0).then(|| entry.describe(name, now, globals));
            entry.break_holds(now, globals);
            was
        })
    }

    pub(super) fn list(&mut self, prefix: &str, now: Moment) -> Vec<LockState> {
        self.settle_all(now);
        let mut found: Vec<_> = self
            .locks
            .iter()
            .filter(|(name, _)| name.as_str().starts_with(prefix))
            .map(|(name, entry)| entry.describe(name, now, &self.globals))
            .collect();
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// Holds, waiters, and tickets whose wake-ups are kept.
    pub(super) fn counts(&mut self, now: Moment) -> (usize, usize, usize) {
        self.settle_all(now);
        let holds = self.locks.values().map(Entry::holds).sum();
        let waiters = self.locks.values().map(Entry::waiters).sum();
        (holds, waiters, self.globals.waiters.len())
    }

    pub(super) fn end_session(&mut self, session: Session, now: Moment) {
        self.globals.end_session(session);
        for name in self.names() {
            if let Some(entry) = self.locks.get_mut(&name) {
                entry.end_session(session, now, &mut self.globals);
            }
        }
        self.locks.retain(|_, entry| !entry.is_blank());
    }

    pub(super) fn wipe(&mut self) {
        for name in self.names() {
            if let Some(entry) = self.locks.remove(&name) {
                entry.wipe(&mut self.globals);
            }
        }
        self.globals.wipe();
    }

    /// All names in order, so that a test that repeats sees the same order of wake-ups again.
    fn names(&self) -> Vec<LockName> {
        let mut names: Vec<_> = self.locks.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    fn end_silent_sessions(&mut self, now: Moment) {
        while let Some(session) = self.globals.end_silent_session(now) {
            self.end_session(session, now);
        }
    }

    fn settle_all(&mut self, now: Moment) {
        self.end_silent_sessions(now);
        self.locks.retain(|_, entry| {
            entry.settle(now, &mut self.globals);
            !entry.is_blank()
        });
    }
}
