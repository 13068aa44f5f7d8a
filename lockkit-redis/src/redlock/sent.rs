//! The attempts of a ticket at each node, until it leaves them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

#[derive(Debug)]
pub(crate) struct Sent(watch::Sender<Attempts>);

#[derive(Debug)]
struct Attempts {
    /// Whether no further one may be written.
    ended: bool,
    nodes: Vec<AtNode>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AtNode {
    /// Attempts that may still have a reply.
    pub(crate) out: u32,
    /// Whether one has none, and may arrive at any time.
    pub(crate) lost: bool,
    /// Whether the ticket held there after one. It may hold still where a later one failed.
    pub(crate) held: bool,
}

impl AtNode {
    /// Whether the node may have something of the ticket.
    pub(crate) const fn may_hold(self) -> bool {
        self.held || self.lost || self.out > 0
    }
}

/// An attempt that may be written. Dropped without a reply, it may arrive at any time.
#[derive(Debug)]
pub(crate) struct Sending {
    sent: Arc<Sent>,
    node: usize,
    /// What the reply says: whether the ticket holds.
    holds: Option<bool>,
}

impl Sending {
    /// The node has replied, or has nothing of it.
    pub(crate) fn answered(mut self, holds: bool) {
        self.holds = Some(holds);
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.sent.0.send_modify(|attempts| {
            let node = &mut attempts.nodes[self.node];
            node.out -= 1;
            node.lost |= self.holds.is_none();
            node.held |= self.holds == Some(true);
        });
    }
}

impl Sent {
    /// `unknown`: those of a ticket that is not known here may arrive at any time, and there are no further ones.
    pub(crate) fn new(nodes: usize, unknown: bool) -> Arc<Self> {
        let node = AtNode {
            lost: unknown,
            ..AtNode::default()
        };
        let (ended, nodes) = (unknown, vec![node; nodes]);
        Arc::new(Self(watch::Sender::new(Attempts { ended, nodes })))
    }

    /// An attempt is to be written; `None` if the ticket leaves the nodes.
    pub(crate) fn begin(self: &Arc<Self>, node: usize) -> Option<Sending> {
        let begun = self.0.send_if_modified(|attempts| {
            attempts.nodes[node].out += u32::from(!attempts.ended);
            !attempts.ended
        });
        begun.then(|| Sending {
            sent: Arc::clone(self),
            node,
            holds: None,
        })
    }

    pub(crate) fn at(&self, node: usize) -> AtNode {
        self.0.borrow().nodes[node]
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
