//! What a store keeps of each ticket, from its first attempt to its release.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::contract::{Attempt, Ticket};
use lockkit_core::store::lock;
use lockkit_core::{BackendError, HolderId, Outcome};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::connection::Link;

/// The number of a holder is below this. Above it is the number of times that its ticket gave nodes up: a request
/// about an earlier one, however late, does not touch a later one.
const GENERATIONS: u64 = 1 << 40;

/// The holder as clients know it.
pub(crate) fn original(holder: HolderId) -> HolderId {
    HolderId::new(holder.client(), holder.number() % GENERATIONS)
}

/// The tickets of a store.
#[derive(Debug, Default)]
pub(crate) struct Tickets(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    tickets: HashMap<HolderId, Entry>,
    /// How many tickets were left when those were removed last that the client has given up.
    left: usize,
}

#[derive(Debug)]
struct Entry {
    generation: u64,
    /// How many attempts have begun. What an earlier one finds out late does not count any more.
    attempts: u64,
    sent: Arc<Sent>,
    /// Whether the client will release it.
    known: bool,
    /// When the client gives its release up.
    ends: Option<Instant>,
}

/// The attempts of a ticket at each node, until it leaves them.
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
    fn new(nodes: usize) -> Arc<Self> {
        Self::with(vec![AtNode::default(); nodes])
    }

    fn with(nodes: Vec<AtNode>) -> Arc<Self> {
        let ended = false;
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

    fn end(&self) {
        self.0.send_modify(|attempts| attempts.ended = true);
    }
}

impl Entry {
    fn as_asked(&self, ticket: &Ticket) -> Ticket {
        let holder = ticket.holder;
        let number = holder.number() + self.generation * GENERATIONS;
        let mut asked = ticket.clone();
        asked.holder = HolderId::new(holder.client(), number);
        asked
    }
}

impl Tickets {
    /// A ticket that is to be attempted, as the nodes know it, and the number of the attempt.
    pub(crate) fn attempted(&self, ticket: &Ticket, nodes: usize) -> (Ticket, Arc<Sent>, u64) {
        let mut state = lock(&self.0);
        if state.tickets.len() > 2 * state.left + 64 {
            let now = Instant::now();
            let lasts = |_: &HolderId, entry: &mut Entry| entry.ends.is_none_or(|end| end > now);
            state.tickets.retain(lasts);
            state.left = state.tickets.len();
        }
        let entry = state.tickets.entry(ticket.holder);
        let entry = entry.or_insert_with(|| Entry {
            generation: 0,
            attempts: 0,
            sent: Sent::new(nodes),
            known: false,
            ends: None,
        });
        entry.attempts += 1;
        let sent = Arc::clone(&entry.sent);
        (entry.as_asked(ticket), sent, entry.attempts)
    }

    /// A ticket that holds, as the nodes know it; without its attempts if it is not known here.
    pub(crate) fn held(&self, ticket: &Ticket) -> (Ticket, Option<Arc<Sent>>) {
        match lock(&self.0).tickets.get(&ticket.holder) {
            Some(entry) => (entry.as_asked(ticket), Some(Arc::clone(&entry.sent))),
            None => (ticket.clone(), None),
        }
    }

    /// The ticket leaves the nodes, which from now on know it as another one. Not if a later attempt has begun, which
    /// may have been granted the lock.
    pub(crate) fn withdrawn(&self, ticket: &Ticket, attempt: u64, nodes: usize) -> bool {
        let mut state = lock(&self.0);
        let entry = state.tickets.get_mut(&ticket.holder);
        let Some(entry) = entry.filter(|entry| entry.attempts == attempt) else {
            return false;
        };
        entry.sent.end();
        entry.sent = Sent::new(nodes);
        entry.generation += 1;
        true
    }

    /// An attempt has this result. Forgets a ticket that the client will not release.
    pub(crate) fn resulted(
        &self,
        ticket: &Ticket,
        attempt: u64,
        result: &Result<Attempt, BackendError>,
    ) {
        let mut state = lock(&self.0);
        let entry = state.tickets.get_mut(&ticket.holder);
        let Some(entry) = entry.filter(|entry| entry.attempts == attempt) else {
            return;
        };
        entry.known |= match result {
            Ok(Attempt::Granted(_)) => true,
            Ok(_) => ticket.enqueue,
            Err(error) => error.outcome() == Outcome::Indeterminate,
        };
        if !entry.known {
            state.tickets.remove(&ticket.holder);
        }
    }

    /// The ticket is to be released, which the client repeats for a while: the ticket as the nodes know it, and its
    /// attempts. Those of an unknown one may arrive at any time.
    pub(crate) fn released(&self, ticket: &Ticket, nodes: usize) -> (Ticket, Arc<Sent>) {
        let mut state = lock(&self.0);
        let Some(entry) = state.tickets.get_mut(&ticket.holder) else {
            let lost = AtNode {
                lost: true,
                ..AtNode::default()
            };
            return (ticket.clone(), Sent::with(vec![lost; nodes]));
        };
        let repeats = ticket.ttl * 2 + Duration::from_secs(10);
        entry.ends.get_or_insert_with(|| Instant::now() + repeats);
        entry.sent.end();
        (entry.as_asked(ticket), Arc::clone(&entry.sent))
    }

    /// The ticket is released.
    pub(crate) fn forget(&self, ticket: &Ticket) {
        lock(&self.0).tickets.remove(&ticket.holder);
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).tickets.len()
    }
}
