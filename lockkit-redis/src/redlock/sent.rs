//! The attempts of a ticket at each node, until it leaves them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::connection::Link;

#[derive(Debug)]
pub(crate) struct Sent(watch::Sender<Attempts>);

#[derive(Debug)]
struct Attempts {
    /// Whether no further one may be written.
    ended: bool,
    nodes: Vec<AtNode>,
}

#[derive(Clone, Copy, Debug, Default)]
struct AtNode {
    /// Attempts that may still have a reply.
    out: u32,
    /// Whether one has none, and may arrive at any time.
    lost: bool,
    /// Whether the ticket held there after one.
    held: bool,
    /// What the connection had rewritten before the first of them.
    rewritten: Option<u64>,
}

/// An attempt that may be written. Dropped without a reply, it may arrive at any time.
#[derive(Debug)]
pub(crate) struct Sending {
    sent: Arc<Sent>,
    node: usize,
    answered: bool,
}

impl Sending {
    /// The node has replied, or has nothing of it.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.sent.0.send_modify(|attempts| {
            let node = &mut attempts.nodes[self.node];
            node.out -= 1;
            node.lost |= !self.answered;
        });
    }
}

impl Sent {
    pub(crate) fn new(nodes: usize) -> Arc<Self> {
        let nodes = vec![AtNode::default(); nodes];
        let ended = false;
        Arc::new(Self(watch::Sender::new(Attempts { ended, nodes })))
    }

    /// Those of a ticket that is not known here: they may arrive at any time, and there are no further ones.
    pub(crate) fn unknown(nodes: usize) -> Arc<Self> {
        let lost = AtNode {
            lost: true,
            ..AtNode::default()
        };
        let nodes = vec![lost; nodes];
        let ended = true;
        Arc::new(Self(watch::Sender::new(Attempts { ended, nodes })))
    }

    /// An attempt is to be written; `None` if the ticket leaves the nodes.
    pub(crate) fn begin(self: &Arc<Self>, node: usize, link: &Link) -> Option<Sending> {
        let rewritten = link.rewritten.load(Ordering::Relaxed);
        let mut begun = false;
        self.0.send_modify(|attempts| {
            begun = !attempts.ended;
            attempts.nodes[node].out += u32::from(begun);
            attempts.nodes[node].rewritten.get_or_insert(rewritten);
        });
        begun.then(|| Sending {
            sent: Arc::clone(self),
            node,
            answered: false,
        })
    }

    /// Whether an attempt has no reply yet.
    pub(crate) fn is_out(&self, node: usize) -> bool {
        self.0.borrow().nodes[node].out > 0
    }

    /// Whether an attempt has none for ever, so that it may arrive at any time.
    pub(crate) fn is_lost(&self, node: usize) -> bool {
        self.0.borrow().nodes[node].lost
    }

    /// The ticket holds at this node.
    pub(crate) fn holds(&self, node: usize) {
        self.0
            .send_modify(|attempts| attempts.nodes[node].held = true);
    }

    /// Whether the ticket held at this node after an attempt. It may hold still where a later one failed.
    pub(crate) fn has_held(&self, node: usize) -> bool {
        self.0.borrow().nodes[node].held
    }

    /// Whether the connection has rewritten a request since the first attempt, perhaps that one.
    pub(crate) fn was_rewritten(&self, node: usize, link: &Link) -> bool {
        let before = self.0.borrow().nodes[node].rewritten;
        before != Some(link.rewritten.load(Ordering::Relaxed))
    }

    /// Waits for the replies that are out, but no longer than this.
    pub(crate) async fn replied(&self, node: usize, patience: Duration) {
        let mut attempts = self.0.subscribe();
        let all = attempts.wait_for(|attempts| attempts.nodes[node].out == 0);
        let _ = timeout(patience, all).await;
    }

    /// No further attempt is written.
    pub(crate) fn end(&self) {
        self.0.send_modify(|attempts| attempts.ended = true);
    }
}
