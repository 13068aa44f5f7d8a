//! The whole store as a state machine: what follows a [`begin`](State::begin) is one server step at its time.

use std::collections::HashMap;

use super::entry::Entry;
use super::globals::{Globals, Session};
use crate::contract::{Capabilities, LockName, LockState};
use crate::time::clock::Moment;

#[derive(Debug)]
pub(super) struct State {
    locks: HashMap<LockName, Entry>,
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
            locks: HashMap::new(),
            globals: Globals::new(rules),
        }
    }

    /// Begins a step.
    pub(super) fn begin(&mut self, now: Moment) {
        self.globals.now = now;
        while let Some(session) = self.globals.end_silent_session() {
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
        let mut found: Vec<_> = self
            .locks
            .iter()
            .filter(|(name, _)| name.as_str().starts_with(prefix))
            .map(|(name, entry)| entry.describe(name, &self.globals))
            .collect();
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        found
    }

    pub(super) fn counts(&mut self) -> Counts {
        self.settle_all();
        Counts {
            holds: self.locks.values().map(Entry::holds).sum(),
            waiters: self.locks.values().map(Entry::waiters).sum(),
            watches: self.globals.waiters.len(),
        }
    }

    pub(super) fn end_session(&mut self, session: Session) {
        self.globals.end_session(session);
        for name in self.names() {
            if let Some(entry) = self.locks.get_mut(&name) {
                entry.end_session(session, &mut self.globals);
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

    fn settle_all(&mut self) {
        self.locks.retain(|_, entry| {
            entry.settle(&mut self.globals);
            !entry.is_blank()
        });
    }
}
