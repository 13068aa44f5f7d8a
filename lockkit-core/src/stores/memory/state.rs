//! The whole store as a state machine: what follows a [`begin`](State::begin) is one server step at its time.

use std::collections::BTreeMap;

use super::entry::Entry;
use super::globals::{Globals, Session};
use crate::contract::{Capabilities, HolderId, LockName, LockState};
use crate::time::clock::Moment;

#[derive(Debug)]
pub(super) struct State {
    /// In an order, so that a test that repeats sees the same wake-ups again.
    locks: BTreeMap<LockName, Entry>,
    pub(super) globals: Globals,
}

/// What a [`MemoryStore`](super::MemoryStore) keeps at a moment. All zero when it is not in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Tickets that hold.
    pub holds: usize,
    /// Tickets that wait.
    pub waiters: usize,
    /// Tickets whose wake-ups are kept.
    pub watches: usize,
}

impl State {
    pub(super) fn new(rules: Capabilities) -> Self {
        Self {
            locks: BTreeMap::new(),
            globals: Globals::new(rules),
        }
    }

    /// Begins a step.
    pub(super) fn begin(&mut self, now: Moment) {
        self.globals.now = now;
        while let Some(session) = self.globals.silent_session() {
            self.end_session(session);
        }
    }

    /// Carries out a step on one lock; a lock that is blank after it is not kept.
    pub(super) fn on<T>(
        &mut self,
        name: &LockName,
        step: impl FnOnce(&mut Entry, &mut Globals) -> T,
    ) -> T {
        let entry = self.locks.entry(name.clone()).or_default();
        let answer = step(entry, &mut self.globals);
        if entry.is_blank() {
            self.locks.remove(name);
        }
        answer
    }

    pub(super) fn list(&mut self, prefix: &str) -> Vec<LockState> {
        self.settle_all();
        let found = self.locks.iter();
        let found = found.filter(|(name, _)| name.as_str().starts_with(prefix));
        let states = found.map(|(name, entry)| entry.describe(name, &self.globals));
        states.collect()
    }

    pub(super) fn counts(&mut self) -> Counts {
        self.settle_all();
        Counts {
            holds: self.locks.values().map(Entry::holds).sum(),
            waiters: self.locks.values().map(Entry::waiters).sum(),
            watches: self.globals.waiters.len(),
        }
    }

    /// Forgets a ticket. Its lease ends what there is of it; with a session, which lasts as long as other tickets use
    /// it, that ends here.
    pub(super) fn forget(&mut self, holder: HolderId) {
        self.globals.waiters.forget(holder);
        if !self.globals.in_sessions() {
            return;
        }
        let lock = self.locks.iter().find(|(_, entry)| entry.knows(holder));
        if let Some(name) = lock.map(|(name, _)| name.clone()) {
            self.on(&name, |entry, globals| entry.release(holder, globals));
        }
    }

    pub(super) fn end_session(&mut self, session: Session) {
        self.globals.alive.remove(&session);
        self.locks.retain(|_, entry| {
            entry.end_session(session, &mut self.globals);
            !entry.is_blank()
        });
    }

    pub(super) fn wipe(&mut self) {
        for entry in std::mem::take(&mut self.locks).into_values() {
            entry.wipe(&mut self.globals);
        }
        self.globals.tombstones.clear();
    }

    fn settle_all(&mut self) {
        self.locks.retain(|_, entry| {
            entry.settle(&mut self.globals);
            !entry.is_blank()
        });
    }
}
