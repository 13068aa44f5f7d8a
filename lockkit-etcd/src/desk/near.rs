//! Watches on single keys, for a waiter that stands behind many.
//!
//! The watch of a lock reports each deletion to every waiter: twice as many waiters are twice as much
//! work for each hand-off. Behind a crowd, a waiter watches its own key and the three right before it.
//! When the farthest of these goes, it reads which keys are left, long before the nearest one goes.
//!
//! Those who wait again and again meet the same neighbours, whose keys are used again: their watches
//! stay open.

use std::collections::HashMap;
use std::sync::Arc;

use crate::contenders::{Before, CROWD, Gone};
use crate::keys::lease;

/// With no more keys than so many, the watch is on the lock again.
const FEW: i64 = CROWD - 2;
/// So many of those right before one are watched.
const NEAREST: usize = 3;
/// The own key and those that are watched.
pub(crate) const NEEDED: i64 = 4;
/// So many watches stay open, those that were needed last.
const OPEN: usize = 5;
/// A watch that was not needed for so many times tells what nobody wants to know.
const UNNEEDED: u64 = 2;

/// The watches on single keys of a lock, for one who waits.
#[derive(Debug, Default)]
pub(super) struct Near {
    watches: HashMap<Arc<str>, Watch>,
    /// What is to be watched: these and its own.
    aimed: Vec<Arc<str>>,
    /// Those right before the waiter.
    nearest: Vec<Arc<str>>,
    /// Whether there are others before these, or may be.
    rest: bool,
    /// Rises with each use.
    uses: u64,
}

#[derive(Debug)]
struct Watch {
    number: i64,
    state: State,
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Wanted,
    Asked,
    /// Deletions after this revision are told.
    Open(i64),
}

/// What [`Near::aim`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// Whatever was deleted since the revision is told, or was.
    Told,
    /// Some of it is not: the keys are to be read.
    Untold,
    /// Watches are to be opened, and the keys to be read then.
    Unopened,
    /// Watches on single keys will not do: what ends with one lease would be told in pieces.
    SameLease,
}

/// Whether to watch single keys, of so many that there are, and as it was until now.
pub(super) const fn is_crowd(all: i64, near: bool) -> bool {
    all > if near { FEW } else { CROWD }
}

impl Near {
    /// Watches a key and those right before it, as they were at a revision. Watches that are not needed
    /// any more go to `ended`.
    pub(super) fn aim(
        &mut self,
        own: &Arc<str>,
        before: Option<&Before>,
        revision: i64,
        ended: &mut Vec<i64>,
    ) -> Aim {
        self.nearest = before.map_or_else(Vec::new, |before| before.nearest(NEAREST));
        self.rest = before.is_none_or(|before| before.is_more_than(self.nearest.len()));
        if self.nearest.iter().any(|key| lease(key) == lease(own)) {
            return Aim::SameLease;
        }
        self.aimed = self.nearest.iter().chain([own]).map(Arc::clone).collect();
        self.uses += 1;
        let mut told = true;
        for key in &self.aimed {
            let watch = self.watches.entry(Arc::clone(key)).or_insert(Watch {
                number: 0,
                state: State::Wanted,
                used: 0,
            });
            watch.used = self.uses;
            told &= matches!(watch.state, State::Open(since) if since <= revision);
        }
        self.end_unneeded(ended);
        match told {
            true => Aim::Told,
            false if self.is_open() => Aim::Untold,
            false => Aim::Unopened,
        }
    }

    fn end_unneeded(&mut self, ended: &mut Vec<i64>) {
        let last = self.uses.saturating_sub(UNNEEDED);
        let unneeded = self.watches.extract_if(|_, watch| watch.used < last);
        ended.extend(unneeded.map(|(_, watch)| watch.number));
        while self.watches.len() > OPEN {
            let oldest = self.watches.iter().min_by_key(|(_, watch)| watch.used);
            let Some(key) = oldest.map(|(key, _)| Arc::clone(key)) else {
                break;
            };
            ended.extend(self.watches.remove(&key).map(|watch| watch.number));
        }
    }

    /// Whether all is told that was aimed at.
    pub(super) fn is_open(&self) -> bool {
        self.aimed.iter().all(|key| {
            let watch = self.watches.get(key);
            watch.is_some_and(|watch| matches!(watch.state, State::Open(_)))
        })
    }

    /// Whether the end of a key means that others may be gone of whom nothing is told.
    pub(super) fn is_nearest(&self, gone: &Gone) -> bool {
        self.rest && self.nearest.contains(&gone.key)
    }

    /// Asks for the watches that are not open, with new numbers. `number` gets the key and its former
    /// number.
    pub(super) fn ask(&mut self, mut number: impl FnMut(&Arc<str>, i64) -> i64) {
        for (key, watch) in &mut self.watches {
            if watch.state == State::Wanted {
                watch.number = number(key, watch.number);
                watch.state = State::Asked;
            }
        }
    }

    /// The deletions of a key are told, those after a revision.
    pub(super) fn opened(&mut self, key: &str, revision: i64) {
        if let Some(watch) = self.watches.get_mut(key) {
            watch.state = State::Open(revision);
        }
    }

    /// The revision after which all are told that were aimed at.
    pub(super) fn opened_at(&self) -> i64 {
        let watches = self.watches.values();
        let opened = watches.map(|watch| match watch.state {
            State::Open(since) => since,
            State::Wanted | State::Asked => 0,
        });
        opened.max().unwrap_or(0)
    }

    /// Whether what is told comes from the present watch on a key.
    pub(super) fn is_watch(&self, key: &str, number: i64) -> bool {
        let watch = self.watches.get(key);
        watch.is_some_and(|watch| watch.number == number)
    }

    /// No events come any more, of one key or of any.
    pub(super) fn closed(&mut self, closed: Option<&str>) {
        for (key, watch) in &mut self.watches {
            if closed.is_none_or(|closed| closed == &**key) {
                watch.state = State::Wanted;
            }
        }
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = i64> {
        self.watches.values().map(|watch| watch.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn before(keys: &[(&str, i64)]) -> Before {
        let keys: Vec<_> = keys.iter().map(|(key, at)| ((*key).into(), *at)).collect();
        Before::of(i64::MAX, &keys, false)
    }

    /// Asks for what is wanted; the numbers go on from `next`.
    fn asked(near: &mut Near, next: &mut i64) -> Vec<String> {
        let mut asked = Vec::new();
        near.ask(|key, _| {
            asked.push(key.to_string());
            *next += 1;
            *next
        });
        asked.sort();
        asked
    }

    #[test]
    fn the_nearest_and_the_own_key_are_watched_and_stay_so() {
        let (mut near, mut ended, mut next) = (Near::default(), Vec::new(), 0);
        let own: Arc<str> = "a/9-1".into();
        let crowd = before(&[("a/1-1", 3), ("a/2-1", 4), ("a/3-1", 5), ("a/4-1", 6)]);
        let aim = near.aim(&own, Some(&crowd), 7, &mut ended);
        assert_eq!(aim, Aim::Unopened);
        assert_eq!(
            asked(&mut near, &mut next),
            ["a/2-1", "a/3-1", "a/4-1", "a/9-1"]
        );
        let numbers: Vec<(Arc<str>, i64)> = near
            .watches
            .iter()
            .map(|(key, watch)| (Arc::clone(key), watch.number))
            .collect();
        for (at, (key, number)) in numbers.iter().enumerate() {
            assert!(near.is_watch(key, *number) && !near.is_watch(key, 77));
            near.opened(key, 9);
            assert_eq!(near.is_open(), at == NEAREST);
        }
        // What went between the revisions 7 and 9 was told to nobody.
        let at = |near: &mut Near, ended: &mut Vec<i64>, revision| {
            near.aim(&own, Some(&crowd), revision, ended)
        };
        assert_eq!(at(&mut near, &mut ended, 8), Aim::Untold);
        assert_eq!(at(&mut near, &mut ended, 9), Aim::Told);
        assert_eq!(asked(&mut near, &mut next), Vec::<String>::new());
        near.closed(Some("a/3-1"));
        assert_eq!(at(&mut near, &mut ended, 9), Aim::Unopened);
        assert_eq!(asked(&mut near, &mut next), ["a/3-1"]);
        assert_eq!(ended, []);
    }

    #[test]
    fn what_is_needed_no_more_ends_after_a_while() {
        let (mut near, mut ended, mut next) = (Near::default(), Vec::new(), 0);
        let own: Arc<str> = "a/9-1".into();
        for other in 10..20 {
            let key = format!("a/{other}-1");
            near.aim(&own, Some(&before(&[(&key, 1)])), 1, &mut ended);
            asked(&mut near, &mut next);
        }
        // Its own, that of the present neighbour, and those of the two before.
        assert_eq!(near.watches.len(), 4);
        assert_eq!(ended.len(), 11 - near.watches.len());
        assert!(near.is_watch("a/9-1", 2) || near.is_watch("a/9-1", 1));
    }

    #[test]
    fn keys_that_end_together_are_watched_together() {
        let (mut near, mut ended) = (Near::default(), Vec::new());
        let crowd = before(&[("a/1-1", 4), ("a/9-3", 5)]);
        let aim = near.aim(&"a/9-1".into(), Some(&crowd), 7, &mut ended);
        assert_eq!(aim, Aim::SameLease);
    }
}
