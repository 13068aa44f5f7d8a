//! What the store keeps of each ticket, from its first attempt to its release.

use std::sync::Arc;

use lockkit_core::store::predecessors::Predecessors;
use tokio::task::AbortHandle;

use crate::session::Session;

/// The tickets of a store.
pub(crate) type Waiters = lockkit_core::store::waiters::Waiters<TicketState>;

/// What the store keeps of one ticket.
#[derive(Debug, Default)]
pub(crate) struct TicketState {
    /// Held by the step that changes the contender: a step takes several requests, and a late attempt must
    /// not create a second node while another creates one.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    /// `None` until an attempt creates a node.
    pub(crate) contender: Option<Contender>,
    /// The task that watches its node.
    pub(crate) watcher: Option<Watcher>,
}

/// A node in the queue of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its name below the node of the lock.
    pub(crate) name: String,
    /// The transaction that created it.
    pub(crate) czxid: i64,
}

/// The place of a ticket in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    /// Its node lives and dies with this session.
    pub(crate) session: Arc<Session>,
    /// The path of the lock's node.
    pub(crate) lock_path: String,
    /// What the name of its node begins with. No other node has this prefix.
    pub(crate) prefix: String,
    /// `None` while no answer has told whether there is one.
    pub(crate) node: Option<Node>,
    /// A request that creates a node has no answer, so that there may be one.
    pub(crate) unanswered: bool,
    pub(crate) granted: bool,
    /// As the last attempt that listed the queue has found them.
    pub(crate) predecessors: Option<Predecessors<String>>,
}

impl Contender {
    /// The path of a node in the same queue.
    pub(crate) fn path(&self, node: &str) -> String {
        format!("{}/{node}", self.lock_path)
    }

    /// The path of its own node.
    pub(crate) fn own_path(&self) -> Option<String> {
        self.node.as_ref().map(|node| self.path(&node.name))
    }
}

/// A task that watches a node. It ends with this handle.
#[derive(Debug)]
pub(crate) struct Watcher(pub(crate) AbortHandle);

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.abort();
    }
}
