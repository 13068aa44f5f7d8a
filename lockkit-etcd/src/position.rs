//! The position of one ticket in the queue of its lock, from what its watches and listings show.
//!
//! A waiter watches its own key and the nearest keys before it that may block it. A watch opens without a start revision,
//! because the server serves a watch on the past only ten times a second. So a waiter lists the keys once
//! the watches are open, unless they were open before.

use std::sync::Arc;

use lockkit_core::store::predecessors::{Next, Predecessors};
use lockkit_core::{HolderId, LossReason};

use crate::keys::{directory, lease};
use crate::queue::{Contender, Key, Listing, mode};
use crate::watches::KeyWatches;

/// What is known of one ticket.
#[derive(Debug, Default)]
pub(crate) struct Position {
    pub(crate) contender: Option<Contender>,
    /// Requests without an answer, which may still create the key or delete it. Those that failed count,
    /// whatever the error says.
    pub(crate) unanswered: u32,
    pub(crate) lost: Option<LossReason>,
    predecessors: Option<Predecessors<Key>>,
    /// The revision of the last listing.
    listed: i64,
    /// Whether a read is under way.
    reading: bool,
    watched: Vec<Arc<str>>,
}

/// What a look at the watches has shown.
#[derive(Debug)]
pub(crate) enum News {
    /// It fits the keys that are left before its own: it holds.
    Turn,
    /// Its own key is gone.
    Gone,
    /// The keys before this, its own, are to be read.
    Unknown(Key),
}

impl Position {
    /// The contender, unless it is known to be lost.
    pub(crate) fn alive(&self) -> Option<&Contender> {
        let alive = |at: &&Contender| self.lost.is_none() && at.session.lease.is_alive();
        self.contender.as_ref().filter(alive)
    }

    /// Takes another key, under another session.
    pub(crate) fn enter(&mut self, contender: Contender) {
        let watched = std::mem::take(&mut self.watched);
        // This leaves the former session.
        *self = Self::default();
        (self.contender, self.watched) = (Some(contender), watched);
    }

    /// Takes the listing that came with its key.
    ///
    /// A waiter lists once more when its watch has opened, even at the same revision. The server reads the
    /// revision that it reports before it begins to watch. It reports a deletion in between up to 100 ms
    /// late: after that of the last predecessor, perhaps, which would be a grant without a key.
    pub(crate) fn enqueued(&mut self, listing: Listing, holds: bool) {
        self.list(listing);
        if !holds {
            self.listed -= 1;
        }
    }

    fn list(&mut self, listing: Listing) {
        let Some(own) = self.own() else {
            return;
        };
        let present = listing.created.map(|created| (Arc::clone(&own.0), created));
        let new = || Predecessors::new(own, mode);
        let predecessors = self.predecessors.get_or_insert_with(new);
        predecessors.listed(listing.before.into_iter().chain(present), listing.truncated);
        self.listed = listing.revision;
    }

    /// Takes the result of a read, unless the key is another one now.
    pub(crate) fn end_read(&mut self, own: &Key, listing: Listing) {
        if self.is_reading(own) {
            self.reading = false;
            self.list(listing);
        }
    }

    /// Whether the keys before this, its own, are to be read.
    pub(crate) fn is_reading(&self, own: &Key) -> bool {
        self.reading && self.own().as_ref() == Some(own)
    }

    /// A key before its own that makes it wait as long as it exists, as far as is known.
    pub(crate) fn blocker(&self) -> Option<Key> {
        self.predecessors.as_ref()?.blocker().cloned()
    }

    /// Takes in what the watches have reported, and asks for the watches that it needs.
    pub(crate) fn update(&mut self, holder: HolderId, watches: &mut KeyWatches) -> Option<News> {
        let at = self.contender.as_ref()?;
        let (key, held) = (Arc::clone(&at.key), at.held);
        let Some(own) = at.own() else {
            self.watch(vec![key], holder, watches);
            return None;
        };
        if watches.deleted(&key) > own.1 {
            return Some(News::Gone);
        }
        let new = || Predecessors::new(own.clone(), mode);
        let mut predecessors = self.predecessors.take().unwrap_or_else(new);
        remove_deleted(&mut predecessors, watches);
        self.watch(needed(&predecessors, &key, &self.watched), holder, watches);
        let mut open = self.watched.iter().map(|key| watches.open_since(key));
        let since = open.try_fold(0, |since: i64, open| Some(since.max(open?)));
        if since.is_some_and(|since| since > self.listed) {
            predecessors.invalidate();
        }
        let news = match predecessors.next() {
            // Until all are open, nothing can be decided.
            _ if since.is_none() => None,
            Next::Turn if !held => Some(News::Turn),
            Next::Gone => Some(News::Gone),
            Next::List if !self.reading => {
                self.reading = true;
                Some(News::Unknown(own))
            }
            _ => None,
        };
        self.predecessors = Some(predecessors);
        news
    }

    /// Needs these keys from now on, and no others.
    pub(crate) fn watch(
        &mut self,
        keys: Vec<Arc<str>>,
        holder: HolderId,
        watches: &mut KeyWatches,
    ) {
        for key in &keys {
            watches.join(key, holder);
        }
        for key in std::mem::replace(&mut self.watched, keys) {
            if !self.watched.contains(&key) {
                watches.leave(&key, holder);
            }
        }
    }

    fn own(&self) -> Option<Key> {
        self.contender.as_ref()?.own()
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        if let Some(at) = self.contender.take() {
            let gone = self.unanswered == 0;
            at.session
                .lease
                .leave(directory(&at.key).len(), at.number, gone);
        }
    }
}

/// Removes the predecessors that were deleted since they were listed.
fn remove_deleted(predecessors: &mut Predecessors<Key>, watches: &KeyWatches) {
    let Next::Watch(nearest) = predecessors.next() else {
        return;
    };
    let nearest = nearest.to_vec();
    for key in nearest {
        // A client may have created a key of that name again.
        if watches.deleted(&key.0) <= key.1 {
            continue;
        }
        predecessors.deleted(&key);
        // The end of a lease deletes all its keys in one revision: the own key may be gone as well.
        if lease(&key.0) == lease(&predecessors.own().0) {
            predecessors.invalidate();
        }
    }
}

/// The keys to watch. While the queue is to be listed, those that were watched before stay.
fn needed(predecessors: &Predecessors<Key>, own: &Arc<str>, watched: &[Arc<str>]) -> Vec<Arc<str>> {
    let mut keys = vec![Arc::clone(own)];
    match predecessors.next() {
        Next::Watch(nearest) => keys.extend(nearest.iter().map(|(key, _)| Arc::clone(key))),
        Next::List => keys.extend(watched.iter().filter(|key| *key != own).map(Arc::clone)),
        Next::Turn | Next::Gone => {}
    }
    keys
}
