//! Who holds and waits for one lock, as the events of its keys tell.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// An event of a key below the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The key is there since this revision.
    Put { key: Arc<str>, created: i64 },
    /// The key is gone.
    Deleted { key: Arc<str> },
}

/// The keys of one lock in the order in which they were created: the first one holds.
#[derive(Debug, Default)]
pub(crate) struct Contenders {
    order: BTreeMap<i64, Arc<str>>,
    created: HashMap<Arc<str>, i64>,
    /// Everything up to this revision is known.
    seen: i64,
}

impl Contenders {
    /// What a read at `revision` has found.
    pub(crate) fn read(revision: i64, keys: impl IntoIterator<Item = (Arc<str>, i64)>) -> Self {
        let mut this = Self {
            seen: revision,
            ..Self::default()
        };
        for (key, created) in keys {
            this.put(key, created);
        }
        this
    }

    /// Applies an event of `revision`, unless the read has seen its effect: a client that uses its key
    /// again would be removed by the deletion of its former key.
    pub(crate) fn apply(&mut self, revision: i64, change: Change) {
        if revision <= self.seen {
            return;
        }
        match change {
            Change::Put { key, created } => self.put(key, created),
            Change::Deleted { key } => {
                if let Some(created) = self.created.remove(&key) {
                    self.order.remove(&created);
                }
            }
        }
    }

    /// All events up to `revision` were applied. Several have the same, so that this is said apart.
    pub(crate) fn seen_up_to(&mut self, revision: i64) {
        self.seen = self.seen.max(revision);
    }

    fn put(&mut self, key: Arc<str>, created: i64) {
        if let Some(former) = self.created.insert(Arc::clone(&key), created) {
            self.order.remove(&former);
        }
        self.order.insert(created, key);
    }

    /// Everything up to this revision is known.
    pub(crate) const fn seen(&self) -> i64 {
        self.seen
    }

    /// Since when a key is there.
    pub(crate) fn created(&self, key: &str) -> Option<i64> {
        self.created.get(key).copied()
    }

    /// How many were created before.
    pub(crate) fn before(&self, created: i64) -> usize {
        self.order.range(..created).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, created: i64) -> Change {
        let key = key.into();
        Change::Put { key, created }
    }

    fn deleted(key: &str) -> Change {
        Change::Deleted { key: key.into() }
    }

    #[test]
    fn the_first_created_is_the_first() {
        let mut all = Contenders::read(9, [("b".into(), 7), ("a".into(), 3)]);
        assert_eq!((all.before(3), all.before(7)), (0, 1));
        all.apply(10, put("c", 10));
        all.apply(11, deleted("a"));
        all.seen_up_to(11);
        assert_eq!((all.before(7), all.before(10)), (0, 1));
        assert_eq!((all.created("a"), all.created("c")), (None, Some(10)));
        assert_eq!(all.seen(), 11);
    }

    #[test]
    fn what_the_read_has_seen_is_not_applied_again() {
        // Go's client uses its key again: it went at 4 and came back at 8.
        let mut all = Contenders::read(9, [("go".into(), 8)]);
        all.apply(4, deleted("go"));
        assert_eq!(all.created("go"), Some(8));
        all.apply(12, deleted("go"));
        assert_eq!(all.created("go"), None);
        all.apply(13, put("go", 13));
        assert_eq!((all.created("go"), all.before(13)), (Some(13), 0));
    }

    #[test]
    fn an_update_keeps_the_place() {
        let mut all = Contenders::read(9, [("a".into(), 3), ("b".into(), 7)]);
        all.apply(10, put("a", 3));
        assert_eq!(all.before(7), 1);
    }
}
