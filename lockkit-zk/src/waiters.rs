//! What is known of each ticket, from its first attempt to its release.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockkit_core::HolderId;
use lockkit_core::backend::Tombstones;

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
    tombstones: Tombstones,
}

#[derive(Debug, Default)]
struct Entry {
    /// `None` until a node is asked for.
    place: Option<Place>,
    /// A watch that its owner has dropped. The requests that remove its parts at the server would stand
    /// before that of the release, which costs a round trip; once the node is deleted there are none.
    parked: Option<Running>,
    turn: Arc<Turn>,
}

/// Whoever has it changes what is known of a ticket, which takes several requests. A late request of
/// a ticket must not make a second node while another is being made.
pub(crate) type Turn = tokio::sync::Mutex<()>;

impl Places {
    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn of a ticket that is attempted; `None` if it was released.
    pub(crate) fn enter(&self, holder: HolderId) -> Option<Arc<Turn>> {
        let mut books = self.lock();
        if books.tombstones.contains(holder) {
            return None;
        }
        let entry = books.places.entry(holder).or_default();
        Some(Arc::clone(&entry.turn))
    }

    /// The turn of a ticket that is known, and refuses its attempts from now on.
    pub(crate) fn bury(&self, holder: HolderId) -> Option<Arc<Turn>> {
        let mut books = self.lock();
        books.tombstones.insert(holder);
        let entry = books.places.get(&holder);
        entry.map(|entry| Arc::clone(&entry.turn))
    }

    /// Whether the ticket was released.
    pub(crate) fn is_gone(&self, holder: HolderId) -> bool {
        self.lock().tombstones.contains(holder)
    }

    pub(crate) fn of(&self, holder: HolderId) -> Option<Place> {
        let books = self.lock();
        books.places.get(&holder)?.place.clone()
    }

    /// Notes what is known of a ticket that was entered; answers whether it still is.
    pub(crate) fn put(&self, holder: HolderId, place: Option<Place>) -> bool {
        let mut books = self.lock();
        let entry = books.places.get_mut(&holder);
        entry.map(|entry| entry.place = place).is_some()
    }

    /// The ticket holds by its node; answers whether it still stands there.
    pub(crate) fn grant(&self, holder: HolderId, node: &Node) -> bool {
        let mut books = self.lock();
        let place = books.places.get_mut(&holder).map(|entry| &mut entry.place);
        let place = place.and_then(Option::as_mut);
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

    /// Forgets a ticket of which nothing is known, unless another attempt of it waits for its turn.
    pub(crate) fn leave(&self, holder: HolderId) {
        let mut books = self.lock();
        // One is the book's, one is that of the attempt that leaves.
        let alone = |entry: &Entry| entry.place.is_none() && Arc::strong_count(&entry.turn) <= 2;
        if books.places.get(&holder).is_some_and(alone) {
            books.places.remove(&holder);
        }
    }

    /// Forgets a ticket whose node is gone.
    pub(crate) fn forget(&self, holder: HolderId) {
        let entry = self.lock().places.remove(&holder);
        drop(entry);
    }

    /// Forgets which tickets were released.
    #[cfg(feature = "mutants")]
    pub(crate) fn raise(&self) {
        self.lock().tombstones.clear();
    }

    /// How many tickets there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().places.len()
    }
}
