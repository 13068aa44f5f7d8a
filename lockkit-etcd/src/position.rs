//! The position of one ticket in the queue of its lock, from what its watches and listings show.
//!
//! A waiter watches its own key and the nearest keys before it. A watch opens without a start revision,
//! because the server serves a watch on the past only ten times a second. So a waiter lists the keys once
//! the watches are open, unless they were open before.

use std::sync::Arc;

use lockkit_core::store::predecessors::{Next, Predecessors};
use lockkit_core::{HolderId, LossReason};

use crate::keys::lease;
use crate::queue::{Contender, Key, Listing, WATCHED};
use crate::watches::{KeyWatches, Read};

/// What is known of one ticket.
#[derive(Debug, Default)]
pub(crate) struct Position {
    contender: Option<Contender>,
    /// Requests without an answer, which may still create the key or delete it. Those that failed count,
    /// whatever the error says.
    unanswered: u32,
    pub(crate) lost: Option<LossReason>,
    predecessors: Option<Predecessors<Key>>,
    /// The revision of the last listing.
    listed: i64,
    /// No older listing is of use.
    least: i64,
    /// The number of the read that is under way.
    reading: Option<i64>,
    watched: Vec<Arc<str>>,
}

/// What a look at the watches has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// No key is left before its own: it holds.
    Turn,
    /// Its own key is gone.
    Gone,
}

impl Position {
    pub(crate) const fn contender(&self) -> Option<&Contender> {
        self.contender.as_ref()
    }

    pub(crate) const fn contender_mut(&mut self) -> Option<&mut Contender> {
        self.contender.as_mut()
    }

    /// The contender, unless it is known to be lost.
    pub(crate) fn alive(&self) -> Option<&Contender> {
        let alive = |at: &&Contender| self.lost.is_none() && at.session.is_alive();
        self.contender.as_ref().filter(alive)
    }

    /// Takes another key, under another session.
    pub(crate) fn enter(&mut self, contender: Contender) {
        let watched = std::mem::take(&mut self.watched);
        // This leaves the former session.
        *self = Self::default();
        (self.contender, self.watched) = (Some(contender), watched);
    }

    /// A request that may create or delete the key is about to be written.
    pub(crate) const fn request(&mut self) {
        self.unanswered += 1;
    }

    /// A request was answered.
    pub(crate) const fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// Takes a listing. Returns whether it is recent enough to be of use.
    pub(crate) fn list(&mut self, listing: Listing) -> bool {
        let Some((own, created)) = self.own().filter(|_| listing.revision >= self.least) else {
            return false;
        };
        let new = || Predecessors::new((own, created), WATCHED);
        let predecessors = self.predecessors.get_or_insert_with(new);
        predecessors.listed(listing.keys, listing.truncated, |_| true);
        self.listed = listing.revision;
        true
    }

    /// Ends a read, unless another one has begun. Returns whether it was the present one.
    pub(crate) fn end_read(&mut self, read: &Read) -> bool {
        self.reading
            .take_if(|number| *number == read.number)
            .is_some()
    }

    pub(crate) fn is_reading(&self, read: &Read) -> bool {
        self.reading == Some(read.number)
    }

    /// The nearest key before its own, as far as is known.
    pub(crate) fn nearest(&self) -> Option<Key> {
        match self.predecessors.as_ref()?.next() {
            Next::Watch(nearest) => nearest.first().cloned(),
            _ => None,
        }
    }

    /// Takes in what the watches have reported, and asks for the watches and the read that it needs.
    pub(crate) fn update(&mut self, holder: HolderId, watches: &mut KeyWatches) -> Option<News> {
        let at = self.contender.as_ref()?;
        let (key, held) = (Arc::clone(&at.key), at.held);
        let Some(created) = at.created else {
            self.watch(vec![key], holder, watches);
            return None;
        };
        if watches.deleted(&key) > created {
            return Some(News::Gone);
        }
        self.least = self.least.max(created);
        let new = || Predecessors::new((Arc::clone(&key), created), WATCHED);
        let mut predecessors = self.predecessors.take().unwrap_or_else(new);
        self.remove_deleted(&mut predecessors, watches);
        self.watch(needed(&predecessors, &key, &self.watched), holder, watches);
        let mut open = self.watched.iter().map(|key| watches.open_since(key));
        // Until all are open, nothing can be decided.
        let since = open.try_fold(0, |since: i64, open| Some(since.max(open?)));
        if let Some(since) = since.filter(|since| *since > self.listed) {
            self.least = self.least.max(since);
            predecessors.invalidate();
        }
        let next = predecessors.next();
        let news = match since.map(|_| next) {
            Some(Next::Turn) if !held => Some(News::Turn),
            Some(Next::Gone) => Some(News::Gone),
            Some(Next::List) if self.reading.is_none() => {
                let directory = self.contender.as_ref().map(|at| Arc::clone(&at.directory));
                self.reading = directory.map(|directory| {
                    watches.read(|number| Read {
                        number,
                        holder,
                        directory,
                        created,
                        least: self.least,
                    })
                });
                None
            }
            _ => None,
        };
        self.predecessors = Some(predecessors);
        news
    }

    /// Removes the predecessors that were deleted since they were listed.
    fn remove_deleted(&mut self, predecessors: &mut Predecessors<Key>, watches: &KeyWatches) {
        let Next::Watch(nearest) = predecessors.next() else {
            return;
        };
        let own = lease(&predecessors.own().0);
        let same_lease = |key: &Key| lease(&key.0) == own;
        let deletion = |key: &Key| {
            let deleted = watches.deleted(&key.0);
            // A client may have created a key of that name again.
            (deleted > key.1).then(|| (key.clone(), deleted, same_lease(key)))
        };
        let deleted: Vec<_> = nearest.iter().filter_map(deletion).collect();
        for (key, revision, same_lease) in deleted {
            predecessors.deleted(&key);
            self.least = self.least.max(revision);
            // The end of a lease deletes all its keys in one revision: the own key may be gone as well.
            if same_lease {
                predecessors.invalidate();
            }
        }
    }

    /// Needs these keys from now on, and no others.
    fn watch(&mut self, keys: Vec<Arc<str>>, holder: HolderId, watches: &mut KeyWatches) {
        for key in &keys {
            watches.join(key, holder);
        }
        for key in std::mem::replace(&mut self.watched, keys) {
            if !self.watched.contains(&key) {
                watches.leave(&key, holder);
            }
        }
    }

    /// Needs no keys any more.
    pub(crate) fn unwatch(&mut self, holder: HolderId, watches: &mut KeyWatches) {
        self.watch(Vec::new(), holder, watches);
    }

    /// Forgets the key without leaving its session, as if the process had died.
    pub(crate) fn abandon(&mut self) -> Option<Contender> {
        self.contender.take()
    }

    fn own(&self) -> Option<(Arc<str>, i64)> {
        let at = self.contender.as_ref()?;
        Some((Arc::clone(&at.key), at.created?))
    }
}

impl Drop for Position {
    fn drop(&mut self) {
        if let Some(at) = self.contender.take() {
            let gone = self.unanswered == 0;
            at.session.leave(at.directory.len(), at.number, gone);
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
