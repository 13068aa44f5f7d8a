//! Who stands before a key, as the deletions of keys tell.
//!
//! Nothing is ever created before a key that is there: those before it are known with the answer that
//! created it, or from one read, and from then on there are only fewer. So nobody has to be told of
//! new keys, which with many contenders are half of all events, and each would go to all of them.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// So many deletions are remembered for answers that are still under way.
const REMEMBERED: usize = 1024;

/// More than so many keys are a crowd: those who stand behind it hear of its nearest keys alone.
pub(crate) const CROWD: i64 = 10;

/// A key that is gone since a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) key: Arc<str>,
    pub(crate) revision: i64,
}

/// A key, and the revision at which it was created.
pub(crate) type Key = (Arc<str>, i64);

/// The keys of a lock at the revision that created the last of them.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// How many there are.
    pub(crate) all: i64,
    /// Those that were created last.
    pub(crate) last: Vec<Key>,
}

impl Listed {
    /// Whether these are all.
    pub(crate) fn is_complete(&self) -> bool {
        i64::try_from(self.last.len()) == Ok(self.all)
    }

    /// Those that were created before `created`, perhaps with others before them.
    pub(crate) fn before(&self, created: i64) -> Before {
        Before::of(created, &self.last, !self.is_complete())
    }
}

/// The keys that were created before one key and are still there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    keys: HashMap<Arc<str>, i64>,
    /// Whether there are others, farther away.
    more: bool,
}

impl Before {
    /// Those of `keys` that were created before `created`, and whether there are `more` before these.
    pub(crate) fn of(created: i64, keys: &[Key], more: bool) -> Self {
        let before = keys.iter().filter(|(_, other)| *other < created);
        let keys = before.cloned().collect();
        Self { keys, more }
    }

    /// Whether these are all.
    pub(crate) const fn is_complete(&self) -> bool {
        !self.more
    }

    /// A key is gone, unless it has come back since: a client that uses its key again would be taken
    /// out by the deletion of its former key. Tells whether it was one of these.
    pub(crate) fn remove(&mut self, gone: &Gone) -> bool {
        let there = self.keys.get(&gone.key);
        let removed = there.is_some_and(|at| *at < gone.revision);
        if removed {
            self.keys.remove(&gone.key);
        }
        removed
    }

    /// The last one, and the revision that created it.
    pub(crate) fn last(&self) -> Option<Key> {
        let last = self.keys.iter().max_by_key(|(_, created)| **created);
        last.map(|(key, created)| (Arc::clone(key), *created))
    }

    /// The last ones: so many at most.
    pub(crate) fn nearest(&self, most: usize) -> Vec<Arc<str>> {
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_unstable_by_key(|(_, created)| Reverse(**created));
        keys.truncate(most);
        keys.into_iter().map(|(key, _)| Arc::clone(key)).collect()
    }

    /// Whether there are more of them than so many, as far as is known.
    pub(crate) fn is_more_than(&self, most: usize) -> bool {
        self.keys.len() > most || self.more
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.more
    }
}

/// The latest deletions below a lock.
#[derive(Debug)]
pub(crate) struct Deletions {
    latest: VecDeque<Gone>,
    /// All that came later are there.
    since: i64,
}

impl Deletions {
    /// None is known; all that come after a revision will be told.
    pub(crate) const fn since(revision: i64) -> Self {
        let latest = VecDeque::new();
        let since = revision;
        Self { latest, since }
    }

    pub(crate) fn push(&mut self, gone: Gone) {
        self.latest.push_back(gone);
        if self.latest.len() > REMEMBERED
            && let Some(oldest) = self.latest.pop_front()
        {
            self.since = self.since.max(oldest.revision);
        }
    }

    /// Those that came after a revision; `None` if some may be forgotten.
    pub(crate) fn after(&self, revision: i64) -> Option<Vec<Gone>> {
        let latest = self.latest.iter();
        let after = latest.filter(|gone| gone.revision > revision);
        (self.since <= revision).then(|| after.cloned().collect())
    }

    pub(crate) fn into_latest(self) -> Vec<Gone> {
        self.latest.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(key: &str, revision: i64) -> Gone {
        let key = key.into();
        Gone { key, revision }
    }

    #[test]
    fn only_what_was_created_before_counts() {
        let keys = [("b".into(), 7), ("a".into(), 3), ("c".into(), 10)];
        assert!(Before::of(3, &keys, false).is_empty());
        let mut before = Before::of(10, &keys, false);
        assert_eq!(before.last(), Some(("b".into(), 7)));
        assert_eq!(before.nearest(1), ["b".into()]);
        assert_eq!(before.nearest(3), ["b".into(), "a".into()]);
        assert!(before.remove(&gone("b", 11)));
        assert!(!before.remove(&gone("stranger", 12)));
        assert_eq!(before.last(), Some(("a".into(), 3)));
        assert!(before.remove(&gone("a", 13)));
        assert!(before.is_empty());
        let last = keys.to_vec();
        let complete = |all| {
            (Listed {
                all,
                last: last.clone(),
            })
            .before(3)
            .is_empty()
        };
        assert!(complete(3) && !complete(4));
    }

    #[test]
    fn a_key_that_came_back_is_not_taken_for_gone() {
        // Go's client uses its key again: it went at 4 and came back at 8.
        let mut before = Before::of(9, &[("go".into(), 8)], false);
        assert!(!before.remove(&gone("go", 4)) && !before.is_empty());
        assert!(before.remove(&gone("go", 12)));
        assert!(before.is_empty());
    }

    #[test]
    fn forgotten_deletions_are_not_taken_for_none() {
        let mut deletions = Deletions::since(5);
        assert!(deletions.after(4).is_none());
        assert_eq!(deletions.after(5), Some(Vec::new()));
        for revision in 6..6 + 1024 {
            deletions.push(gone("a", revision));
        }
        let count = |after| deletions.after(after).map(|them| them.len());
        assert_eq!((count(5), count(1000)), (Some(1024), Some(29)));
        deletions.push(gone("a", 2000));
        assert!(deletions.after(5).is_none());
        assert_eq!(deletions.after(6).map(|them| them.len()), Some(1024));
    }
}
