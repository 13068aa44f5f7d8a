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
