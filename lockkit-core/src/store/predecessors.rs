//! Decides from listings and deletions which keys of a queue block a waiter. ZooKeeper and etcd share it.
//!
//! A store keeps one [`Predecessors`] for each waiter and does what [`next`](Predecessors::next) says:
//! 1. [`Next::List`]: read the queue, then call [`listed`](Predecessors::listed).
//! 2. [`Next::Watch`]: watch the own key and these, and no others. If one of these may have gone between
//!    the listing and its watch, call [`invalidate`](Predecessors::invalidate).
//! 3. An event comes: call [`deleted`](Predecessors::deleted) for each key that it reports, then `next`.
//!    Call `invalidate` if events may be missing or out of order. Call it, too, if the same step of the server may
//!    have removed other keys (those of one session), or may have put another key in the same place.
//! 4. [`Next::Turn`]: no predecessor is left. The own key may be gone all the same: feed its events first.
//!
//! No listing may be older than an event that was fed before it. There is no I/O and no clock in here.
//!
//! A ticket holds as soon as its mode [fits](Mode::fits) the keys before its own. No key is ever inserted
//! before one that exists, so that a ticket which fits goes on fitting, and no waiter starves.

use crate::contract::Mode;

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

/// The nearest keys that may block a waiter, as listings and deletions show them.
///
/// A key `K` names one place in one queue for ever: if the server may use a name again, the key holds the
/// revision that created it as well. A set of predecessors only shrinks. A waiter watches the nearest few of
/// them, because watching all makes each hand-off cost as much as there are waiters.
#[derive(Clone, Debug)]
pub struct Predecessors<K> {
    own: K,
    mode: fn(&K) -> Mode,
    /// Those that may block the waiter and are to be watched, the nearest first.
    nearest: Vec<K>,
    /// Whether others may block it too, farther away.
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
    /// Knows nothing yet of the keys before `own`. `mode` tells the mode of any key.
    #[must_use]
    pub const fn new(own: K, mode: fn(&K) -> Mode) -> Self {
        Self {
            own,
            mode,
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
    /// `truncated` says that there are keys before the first of these.
    pub fn listed(&mut self, queue: impl IntoIterator<Item = K>, truncated: bool) {
        if self.known == Known::OwnIsGone {
            return;
        }
        let (mode, own) = (self.mode, (self.mode)(&self.own));
        let mut before = Vec::new();
        let mut queue = queue.into_iter();
        let found = queue.any(|key| {
            let found = key == self.own;
            if !found {
                before.push(key);
            }
            found
        });
        // Those that share block it together or not at all.
        if !truncated && own.fits(count(&before), false) {
            before.retain(|key| mode(key).is_exclusive());
        }
        let shared = before.last().is_some_and(|key| !mode(key).is_exclusive());
        let most = if shared { watched(own) } else { IN_ORDER } as usize;
        self.more = truncated || before.len() > most;
        self.nearest = before.into_iter().rev().take(most).collect();
        self.known = match found {
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

    /// The nearest key that makes the waiter wait as long as it exists, whatever happens to the others.
    pub fn blocker(&self) -> Option<&K> {
        let (Next::Watch([nearest, ..]), own) = (self.next(), (self.mode)(&self.own)) else {
            return None;
        };
        let alone = !own.fits(1, (self.mode)(nearest).is_exclusive());
        alone.then_some(nearest)
    }

    /// What the waiter has to do now.
    pub fn next(&self) -> Next<'_, K> {
        let own = (self.mode)(&self.own);
        match self.known {
            Known::OwnIsGone => Next::Gone,
            Known::Nothing => Next::List,
            Known::Nearest if !fits(own, &self.nearest, self.mode) => Next::Watch(&self.nearest),
            Known::Nearest if self.more => Next::List,
            Known::Nearest => Next::Turn,
        }
    }
}

/// How many exclusive keys a waiter watches: they go in their order.
const IN_ORDER: u32 = 2;

/// The most keys before its own that a waiter watches at a time.
///
/// That is more than can make it wait: it lists again when one of them goes, usually long before its turn, and a
/// hand-off needs no listing. Those that share go in any order, and several at a time.
#[must_use]
pub const fn watched(mode: Mode) -> u32 {
    const SHARED: u32 = 16;
    match mode {
        Mode::Exclusive | Mode::Write => SHARED,
        Mode::Read => IN_ORDER,
        Mode::Permit { of } if of.get() < SHARED => of.get() * 2,
        Mode::Permit { of } => of.get().saturating_add(SHARED),
    }
}

/// Whether a ticket holds that has these keys before its own.
pub fn fits<K>(own: Mode, before: &[K], mode: impl Fn(&K) -> Mode) -> bool {
    let exclusive = before.iter().any(|key| mode(key).is_exclusive());
    own.fits(count(before), exclusive)
}

/// Those that hold, of a whole queue in its order.
pub fn holding<K>(queue: &[K], mode: impl Fn(&K) -> Mode) -> impl Iterator<Item = &K> {
    let (mut before, mut exclusive) = (0, false);
    queue.iter().filter(move |key| {
        let own = mode(key);
        let holds = own.fits(before, exclusive);
        before += 1;
        exclusive |= own.is_exclusive();
        holds
    })
}

fn count<K>(keys: &[K]) -> u32 {
    u32::try_from(keys.len()).unwrap_or(u32::MAX)
}
