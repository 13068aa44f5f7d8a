//! Which keys are watched, and what is known of them. There is no I/O here.
//!
//! One watch serves all tickets that need the same key. It stays open for a while after the last of them,
//! because clients that take a lock in turns meet the same neighbours again.

use std::collections::HashMap;
use std::sync::Arc;

use lockkit_core::HolderId;

#[derive(Debug, Default)]
pub(crate) struct KeyWatches {
    keys: HashMap<Arc<str>, KeyWatch>,
    /// The keys of the watches that the server was asked for, by their numbers.
    by_number: HashMap<i64, Arc<str>>,
    wanted: Vec<Arc<str>>,
    /// The last number that a watch has got.
    last: i64,
}

#[derive(Debug)]
struct KeyWatch {
    number: i64,
    phase: Phase,
    /// The last revision that deleted the key, as far as the watch has reported; 0 if none did.
    deleted: i64,
    /// The tickets that need it.
    tickets: Vec<HolderId>,
    /// Whether no ticket needed it when [`KeyWatches::end_unused`] was called last.
    unused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Wanted,
    Asked,
    /// Deletions after this revision are reported.
    Open(i64),
}

impl KeyWatches {
    /// A ticket needs a key from now on.
    pub(crate) fn join(&mut self, key: &Arc<str>, holder: HolderId) {
        let watch = self.keys.entry(Arc::clone(key)).or_insert_with(|| {
            self.wanted.push(Arc::clone(key));
            KeyWatch {
                number: 0,
                phase: Phase::Wanted,
                deleted: 0,
                tickets: Vec::new(),
                unused: false,
            }
        });
        watch.unused = false;
        if !watch.tickets.contains(&holder) {
            watch.tickets.push(holder);
        }
    }

    /// A ticket does not need a key any more.
    pub(crate) fn leave(&mut self, key: &str, holder: HolderId) {
        if let Some(watch) = self.keys.get_mut(key) {
            watch.tickets.retain(|ticket| *ticket != holder);
        }
    }

    /// The revision after which all deletions of a key are reported; `None` if its watch is not open.
    pub(crate) fn open_since(&self, key: &str) -> Option<i64> {
        match self.keys.get(key)?.phase {
            Phase::Open(since) => Some(since),
            Phase::Wanted | Phase::Asked => None,
        }
    }

    /// The last revision that deleted a key, as far as reported; 0 if none did.
    pub(crate) fn deleted(&self, key: &str) -> i64 {
        self.keys.get(key).map_or(0, |watch| watch.deleted)
    }

    /// Whether the server is to be asked for a watch.
    pub(crate) const fn is_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Takes the watches that the server is to be asked for, with new numbers.
    pub(crate) fn take_wanted(&mut self) -> Vec<(i64, Arc<str>)> {
        let mut taken = Vec::new();
        for key in std::mem::take(&mut self.wanted) {
            if let Some(watch) = self.keys.get_mut(&key)
                && watch.phase == Phase::Wanted
            {
                self.last += 1;
                (watch.number, watch.phase) = (self.last, Phase::Asked);
                self.by_number.insert(self.last, Arc::clone(&key));
                taken.push((self.last, key));
            }
        }
        taken
    }

    /// A watch reports deletions after a revision from now on. Returns the tickets that need it.
    pub(crate) fn opened(&mut self, number: i64, revision: i64) -> Vec<HolderId> {
        self.change(number, |watch| watch.phase = Phase::Open(revision))
    }

    /// A revision has deleted the key of a watch. Returns the tickets that need it.
    pub(crate) fn report(&mut self, number: i64, revision: i64) -> Vec<HolderId> {
        self.change(number, |watch| watch.deleted = watch.deleted.max(revision))
    }

    /// A watch has ended. It is wanted again if a ticket needs it.
    pub(crate) fn closed(&mut self, number: i64) {
        let Some(key) = self.by_number.remove(&number) else {
            return;
        };
        match self.keys.get_mut(&key) {
            Some(watch) if !watch.tickets.is_empty() => {
                watch.phase = Phase::Wanted;
                self.wanted.push(key);
            }
            _ => drop(self.keys.remove(&key)),
        }
    }

    /// All watches have ended, with their stream.
    pub(crate) fn all_closed(&mut self) {
        let numbers: Vec<i64> = self.by_number.keys().copied().collect();
        for number in numbers {
            self.closed(number);
        }
    }

    /// Removes the watches that no ticket has needed since the last call. Returns the numbers of those that
    /// the server was asked for.
    pub(crate) fn end_unused(&mut self) -> Vec<i64> {
        let unused = |watch: &mut KeyWatch| {
            watch.tickets.is_empty() && std::mem::replace(&mut watch.unused, true)
        };
        let ended = self.keys.extract_if(|_, watch| unused(watch));
        let numbers = ended.map(|(_, watch)| watch.number);
        let by_number = &mut self.by_number;
        numbers
            .filter(|number| by_number.remove(number).is_some())
            .collect()
    }

    /// The first watch that was asked for and is not answered yet.
    pub(crate) fn unanswered(&self) -> Option<i64> {
        let asked = |watch: &&KeyWatch| watch.phase == Phase::Asked;
        let asked = self.keys.values().filter(asked);
        asked.map(|watch| watch.number).min()
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    fn change(&mut self, number: i64, change: impl FnOnce(&mut KeyWatch)) -> Vec<HolderId> {
        let key = self.by_number.get(&number);
        let Some(watch) = key.and_then(|key| self.keys.get_mut(key)) else {
            return Vec::new();
        };
        change(watch);
        watch.tickets.clone()
    }
}

#[cfg(test)]
mod tests {
    use lockkit_core::ClientId;

    use super::*;

    fn ticket() -> HolderId {
        HolderId::new(ClientId::random(), 1)
    }

    #[test]
    fn unused_watch_ends_later_unless_needed_again() {
        let (mut watches, key, one) = (KeyWatches::default(), Arc::from("a/1-1"), ticket());
        watches.join(&key, one);
        watches.take_wanted();
        watches.leave(&key, one);
        assert!(watches.end_unused().is_empty());
        watches.join(&key, one);
        watches.leave(&key, one);
        assert!(watches.end_unused().is_empty());
        assert_eq!(watches.len(), 1);
        assert_eq!(watches.end_unused(), [1]);
        assert_eq!(watches.len(), 0);
    }

    #[test]
    fn ended_stream_is_asked_again_for_needed_keys() {
        let mut watches = KeyWatches::default();
        let (needed, unused): (Arc<str>, Arc<str>) = ("a/1-1".into(), "a/2-1".into());
        let one = ticket();
        watches.join(&needed, one);
        watches.join(&unused, one);
        watches.leave(&unused, one);
        watches.take_wanted();
        assert_eq!(watches.unanswered(), Some(1));
        watches.opened(1, 5);
        assert_eq!(watches.unanswered(), Some(2));
        watches.report(1, 6);
        watches.all_closed();
        assert_eq!(watches.take_wanted(), [(3, Arc::clone(&needed))]);
        assert_eq!(watches.len(), 1);
        // What was reported stays true.
        assert_eq!(watches.deleted(&needed), 6);
        assert!(watches.opened(1, 9).is_empty());
    }
}
