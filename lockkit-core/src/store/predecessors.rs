//! Decides from listings and deletions which keys of a queue block a waiter. ZooKeeper and etcd share it.
//!
//! A store keeps one [`Predecessors`] for each waiter and does what [`next`](Predecessors::next) says:
//! 1. [`Next::List`]: read the queue, then call [`listed`](Predecessors::listed).
//! 2. [`Next::Watch`]: watch the own key and these, and no others. If one of these may have gone between
//!    the listing and its watch, call [`invalidate`](Predecessors::invalidate).
//! 3. An event comes: call [`deleted`](Predecessors::deleted) for each key that it reports, then `next`.
//!    If events may be missing or out of order, or if the same step of the server may have removed other
//!    keys too (those of one session), or may have put another key in the same place, call `invalidate`.
//! 4. [`Next::Turn`]: no predecessor is left. The own key may be gone all the same: feed its events first.
//!
//! No listing may be older than an event that was fed before it. There is no I/O and no clock in here.

/// What a waiter has to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a store has to do each of these")]
pub enum Next<'a, K> {
    /// Nothing blocks the waiter: it has the lock.
    Turn,
    /// Wait until one of these is deleted. The nearest comes first.
    Watch(&'a [K]),
    /// List the queue: it is not known what blocks the waiter.
    List,
    /// The own key is gone: the waiter has lost its place.
    Gone,
}

/// The nearest keys that block a waiter, as listings and deletions show them.
///
/// A key `K` names one place in one queue for ever: if the server may use a name again, the key holds the
/// revision that created it as well. No key is ever inserted before one that exists, so that a set of
/// predecessors only shrinks. A waiter watches the nearest few of them, because watching all makes
/// each hand-off cost as much as there are waiters.
#[derive(Clone, Debug)]
pub struct Predecessors<K> {
    own: K,
    most: usize,
    /// Those that block the waiter and are to be watched, the nearest first.
    nearest: Vec<K>,
    /// Whether others block it too, farther away.
    more: bool,
    known: Known,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    Nearest,
    OwnIsGone,
}

impl<K: PartialEq> Predecessors<K> {
    /// Knows nothing yet of the keys before `own`. At most `most` keys are watched at a time.
    ///
    /// With two, the waiter lists again when the second nearest goes, usually long before the nearest
    /// goes, and a hand-off needs no listing.
    ///
    /// # Panics
    /// If `most` is zero.
    #[must_use]
    pub const fn new(own: K, most: usize) -> Self {
        assert!(most > 0, "a waiter watches at least one predecessor");
        Self {
            own,
            most,
            nearest: Vec::new(),
            more: false,
            known: Known::Nothing,
        }
    }

    /// The key of the waiter.
    pub const fn own(&self) -> &K {
        &self.own
    }

    /// Takes a listing of the queue, from its head to the own key at least.
    ///
    /// `truncated` says that there are keys before the first of these. A key blocks the waiter if
    /// `blocks` says so: each one blocks a writer, and only writers block a reader.
    pub fn listed(
        &mut self,
        queue: impl IntoIterator<Item = K>,
        truncated: bool,
        blocks: impl Fn(&K) -> bool,
    ) {
        if self.known == Known::OwnIsGone {
            return;
        }
        let mut before = Vec::new();
        let mut queue = queue.into_iter();
        let found = queue.any(|key| {
            let own = key == self.own;
            if !own && blocks(&key) {
                before.push(key);
            }
            own
        });
        self.more = truncated || before.len() > self.most;
        self.nearest = before.into_iter().rev().take(self.most).collect();
        self.known = match found {
            true if self.nearest.is_empty() && self.more => Known::Nothing,
            true => Known::Nearest,
            false => Known::OwnIsGone,
        };
    }

    /// Takes the deletion of one key. Others are ignored than the own one and those to be watched.
    pub fn deleted(&mut self, key: &K) {
        if *key == self.own {
            self.known = Known::OwnIsGone;
        } else if let Some(at) = self.nearest.iter().position(|other| other == key) {
            self.nearest.remove(at);
            if self.more {
                self.invalidate();
            }
        }
    }

    /// What was listed may be out of date: the waiter has to list again.
    pub fn invalidate(&mut self) {
        if self.known == Known::Nearest {
            self.known = Known::Nothing;
        }
    }

    /// What the waiter has to do now.
    pub fn next(&self) -> Next<'_, K> {
        match self.known {
            Known::OwnIsGone => Next::Gone,
            Known::Nothing => Next::List,
            Known::Nearest if self.nearest.is_empty() => Next::Turn,
            Known::Nearest => Next::Watch(&self.nearest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(own: u32, queue: &[u32]) -> Predecessors<u32> {
        let mut waiter = Predecessors::new(own, 2);
        assert_eq!(waiter.next(), Next::List);
        waiter.listed(queue.iter().copied(), false, |_| true);
        waiter
    }

    #[test]
    fn first_in_queue_has_its_turn() {
        assert_eq!(listed(3, &[3, 4]).next(), Next::Turn);
    }

    #[test]
    fn watches_nearest_two() {
        assert_eq!(listed(9, &[1, 3, 5, 9, 11]).next(), Next::Watch(&[5, 3]));
        assert_eq!(listed(3, &[1, 3]).next(), Next::Watch(&[1]));
    }

    #[test]
    fn last_deletion_is_the_turn_in_any_order() {
        for order in [[3, 5], [5, 3]] {
            let mut waiter = listed(9, &[3, 5, 9]);
            waiter.deleted(&order[0]);
            assert_eq!(waiter.next(), Next::Watch(&[order[1]]));
            waiter.deleted(&order[1]);
            assert_eq!(waiter.next(), Next::Turn);
        }
    }

    #[test]
    fn lists_again_while_others_are_farther_away() {
        for gone in [3, 5] {
            let mut waiter = listed(9, &[1, 3, 5, 9]);
            waiter.deleted(&gone);
            assert_eq!(waiter.next(), Next::List);
            waiter.listed([8 - gone, 9], false, |_| true);
            assert_eq!(waiter.next(), Next::Watch(&[8 - gone]));
        }
    }

    #[test]
    fn truncated_listing_is_no_turn() {
        let mut waiter = Predecessors::new(9, 2);
        waiter.listed([5, 9], true, |_| true);
        waiter.deleted(&5);
        assert_eq!(waiter.next(), Next::List);
        waiter.listed([9], true, |_| true);
        assert_eq!(waiter.next(), Next::List);
    }

    #[test]
    fn missed_events_are_no_turn() {
        let mut waiter = listed(9, &[5, 9]);
        waiter.invalidate();
        waiter.deleted(&5);
        assert_eq!(waiter.next(), Next::List);
        waiter.listed([9], false, |_| true);
        assert_eq!(waiter.next(), Next::Turn);
    }

    #[test]
    fn lost_own_key_stays_lost() {
        let mut absent = listed(9, &[5, 11]);
        let mut deleted = listed(9, &[5, 9]);
        deleted.deleted(&9);
        for waiter in [&mut absent, &mut deleted] {
            assert_eq!(waiter.next(), Next::Gone);
            waiter.deleted(&5);
            waiter.invalidate();
            waiter.listed([9], false, |_| true);
            assert_eq!(waiter.next(), Next::Gone);
        }
    }

    #[test]
    fn reader_waits_only_for_writers() {
        let is_writer = |key: &u32| key.is_multiple_of(2);
        let mut reader = Predecessors::new(9, 2);
        reader.listed([1, 2, 3, 9, 10], false, is_writer);
        assert_eq!(reader.next(), Next::Watch(&[2]));
        reader.deleted(&1);
        assert_eq!(reader.next(), Next::Watch(&[2]));
        reader.deleted(&2);
        assert_eq!(reader.next(), Next::Turn);
    }

    /// A small generator chooses the order in which keys leave a queue of twelve. Each waiter gets the
    /// deletions that it watches, and lists when it has to.
    #[test]
    fn each_waiter_has_its_turn_exactly_when_it_is_first() {
        let mut random: u32 = 1;
        for _ in 0..200 {
            let mut queue: Vec<u32> = (0..12).collect();
            let mut waiters: Vec<_> = queue.iter().map(|own| listed(*own, &queue)).collect();
            while !queue.is_empty() {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let gone = queue.remove((random >> 16) as usize % queue.len());
                for waiter in &mut waiters {
                    waiter.deleted(&gone);
                    if waiter.next() == Next::List {
                        waiter.listed(queue.iter().copied(), false, |_| true);
                    }
                    let first = queue.first() == Some(waiter.own());
                    assert_eq!(waiter.next() == Next::Turn, first);
                    let there = queue.contains(waiter.own());
                    assert_eq!(waiter.next() == Next::Gone, !there);
                }
            }
        }
    }
}
