//! What is known of each ticket, from its first attempt to its release.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkit_core::HolderId;

use crate::gone::Gone;
use crate::session::Session;
use crate::watch::Running;

/// A node in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its name below the lock's node.
    pub(crate) name: String,
    /// The transaction that made it.
    pub(crate) czxid: i64,
}

/// Where a ticket stands.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Its node lives and dies with this session.
    pub(crate) session: Arc<Session>,
    /// The node of the lock.
    pub(crate) dir: String,
    /// What its own node begins with; nobody else's does.
    pub(crate) prefix: String,
    /// `None` while it is not known whether there is one.
    pub(crate) node: Option<Node>,
    /// A request that makes a node was handed over and not answered.
    pub(crate) unsure: bool,
    pub(crate) granted: bool,
    /// The two nearest that the last attempt saw before it.
    pub(crate) before: Option<(Option<String>, Option<String>)>,
}

impl Place {
    pub(crate) const fn new(session: Arc<Session>, dir: String, prefix: String) -> Self {
        Self {
            session,
            dir,
            prefix,
            node: None,
            unsure: false,
            granted: false,
            before: None,
        }
    }

    /// The path of a node beside its own.
    pub(crate) fn path(&self, node: &str) -> String {
        format!("{}/{node}", self.dir)
    }

    /// The path of its own node.
    pub(crate) fn own_path(&self) -> Option<String> {
        self.node.as_ref().map(|node| self.path(&node.name))
    }
}

/// The places of all tickets of a store.
#[derive(Debug, Default)]
pub(crate) struct Places {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    places: HashMap<HolderId, Entry>,
    gone: Gone,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    /// A watch whose owner has gone. Its parts at the server are taken away only after the node is:
    /// then nothing of it is left there, and no request delays the release.
    parked: Option<Running>,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the ticket was released.
    pub(crate) fn is_gone(&self, holder: HolderId) -> bool {
        self.lock().gone.contains(holder)
    }

    pub(crate) fn of(&self, holder: HolderId) -> Option<Place> {
        let books = self.lock();
        books.places.get(&holder).map(|entry| entry.place.clone())
    }

    /// Notes what is known of a ticket; not of one that was released meanwhile.
    pub(crate) fn put(&self, holder: HolderId, place: Place) {
        let mut books = self.lock();
        if let Some(entry) = books.places.get_mut(&holder) {
            entry.place = place;
        } else if !books.gone.contains(holder) {
            let parked = None;
            books.places.insert(holder, Entry { place, parked });
        }
    }

    /// The ticket holds by its node; answers whether it still stands there.
    pub(crate) fn grant(&self, holder: HolderId, node: &Node) -> bool {
        let mut books = self.lock();
        let place = books.places.get_mut(&holder).map(|entry| &mut entry.place);
        let place = place.filter(|place| place.node.as_ref() == Some(node));
        place.map(|place| place.granted = true).is_some()
    }

    /// Keeps a watch until the ticket is released.
    pub(crate) fn park(&self, holder: HolderId, watch: Running) {
        let mut books = self.lock();
        if let Some(entry) = books.places.get_mut(&holder) {
            let before = entry.parked.replace(watch);
            // Unlocked first: its end sends requests.
            drop(books);
            drop(before);
        }
    }

    /// Forgets a ticket that left nothing behind.
    pub(crate) fn forget(&self, holder: HolderId) {
        let entry = self.lock().places.remove(&holder);
        drop(entry);
    }

    /// Refuses the ticket from now on; what is known of it stays until its node is gone.
    pub(crate) fn bury(&self, holder: HolderId) {
        self.lock().gone.insert(holder);
    }

    /// How many tickets there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().places.len()
    }
}
