//! What the store keeps of each ticket, from its first attempt to its release.

use std::sync::Arc;

use lockkit_core::store::predecessors::Predecessors;
use tokio::task::JoinSet;

use crate::keys;
use crate::session::Session;

pub(crate) type Waiters = lockkit_core::store::waiters::Waiters<TicketState>;

/// What the store keeps of one ticket.
#[derive(Default)]
pub(crate) struct TicketState {
    /// `None` until an attempt creates a node, and if none was created.
    pub(crate) contender: Option<Contender>,
    /// The task that watches its node. It ends with this.
    pub(crate) watcher: JoinSet<()>,
}

/// A node in the queue of a lock.
#[derive(Clone)]
pub(crate) struct Node {
    /// The transaction that created it.
    pub(crate) czxid: i64,
    /// Those before it, and its name below the node of the lock.
    pub(crate) predecessors: Predecessors<String>,
    pub(crate) granted: bool,
}

impl Node {
    pub(crate) fn new(name: String, czxid: i64) -> Self {
        let mode = |node: &String| keys::mode(node);
        Self {
            czxid,
            predecessors: Predecessors::new(name, mode),
            granted: false,
        }
    }

    /// Its name below the node of the lock.
    pub(crate) fn name(&self) -> &str {
        self.predecessors.own()
    }
}

/// The place of a ticket in a queue.
#[derive(Clone)]
pub(crate) struct Contender {
    /// Its node lives and dies with this session.
    pub(crate) session: Arc<Session>,
    /// The path of the lock's node.
    pub(crate) lock_path: String,
    /// What the name of its node begins with. No other node has this prefix.
    pub(crate) prefix: String,
    /// `None` while the request that creates it has no answer, so that there may be one.
    pub(crate) node: Option<Node>,
}

impl Contender {
    /// The path of a node in the same queue.
    pub(crate) fn path(&self, node: &str) -> String {
        format!("{}/{node}", self.lock_path)
    }

    pub(crate) fn own_path(&self) -> Option<String> {
        self.node.as_ref().map(|node| self.path(node.name()))
    }

    /// The path of its own node, if it was granted the lock.
    pub(crate) fn held_path(&self) -> Option<String> {
        let node = self.node.as_ref().filter(|node| node.granted)?;
        Some(self.path(node.name()))
    }
}
