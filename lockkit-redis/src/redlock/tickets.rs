//! What a store keeps of each ticket, from its first attempt to its release.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use lockkit_core::contract::{Attempt, Ticket};
use lockkit_core::store::lock;
use lockkit_core::{BackendError, HolderId, Outcome};
use tokio::time::Instant;

use crate::admission::Admission;

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

#[derive(Debug, Default)]
struct Entry {
    generation: u64,
    sent: Vec<Sent>,
    /// Whether the client will release it.
    known: bool,
    /// When the client gives its release up.
    ends: Option<Instant>,
}

/// The attempts of a ticket at a node, in its present generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    unanswered: u32,
    connection: Option<Admission>,
    /// Whether one may arrive after a release.
    late: bool,
}

impl Sent {
    /// Whether an attempt may arrive after a request on this connection. On its own connection, none does.
    pub(crate) fn is_late(&self, connection: Option<&Admission>) -> bool {
        let same = |sent: &Admission| connection.is_some_and(|it| sent.is_same(it));
        self.late || self.unanswered > 0 && !self.connection.as_ref().is_some_and(same)
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
    /// The ticket as the nodes know it, which is to be attempted.
    pub(crate) fn attempted(&self, ticket: &Ticket, nodes: usize) -> Ticket {
        let mut state = lock(&self.0);
        if state.tickets.len() > 2 * state.left + 64 {
            let now = Instant::now();
            let lasts = |_: &HolderId, entry: &mut Entry| entry.ends.is_none_or(|end| end > now);
            state.tickets.retain(lasts);
            state.left = state.tickets.len();
        }
        let entry = state.tickets.entry(ticket.holder).or_default();
        entry.sent.resize(nodes, Sent::default());
        entry.as_asked(ticket)
    }

    /// The same for one that holds.
    pub(crate) fn held(&self, ticket: &Ticket) -> Ticket {
        let state = lock(&self.0);
        let entry = state.tickets.get(&ticket.holder);
        entry.map_or_else(|| ticket.clone(), |entry| entry.as_asked(ticket))
    }

    /// An attempt of a ticket as nodes know it is about to be written; without a connection it is not known in which
    /// order with a release. Returns whether it may be.
    pub(crate) fn sent(&self, asked: HolderId, node: usize, on: Option<Admission>) -> bool {
        self.with(asked, node, |sent| {
            sent.late = sent.is_late(on.as_ref());
            sent.unanswered += 1;
            sent.connection = on;
        })
    }

    /// The node has replied.
    pub(crate) fn answered(&self, asked: HolderId, node: usize) {
        self.with(asked, node, |sent| {
            sent.unanswered = sent.unanswered.saturating_sub(1);
        });
    }

    fn with(&self, asked: HolderId, node: usize, change: impl FnOnce(&mut Sent)) -> bool {
        let mut state = lock(&self.0);
        let entry = state.tickets.get_mut(&original(asked));
        let generation = asked.number() / GENERATIONS;
        let entry = entry.filter(|entry| entry.generation == generation);
        let sent = entry.and_then(|entry| entry.sent.get_mut(node));
        sent.map(change).is_some()
    }

    /// What was sent for a ticket, which is to leave the nodes.
    pub(crate) fn of(&self, ticket: &Ticket) -> Vec<Sent> {
        let state = lock(&self.0);
        let entry = state.tickets.get(&ticket.holder);
        entry.map_or_else(Vec::new, |entry| entry.sent.clone())
    }

    /// From now on the nodes know the ticket as another one.
    pub(crate) fn withdrawn(&self, ticket: &Ticket) {
        if let Some(entry) = lock(&self.0).tickets.get_mut(&ticket.holder) {
            entry.generation += 1;
            entry.sent.fill(Sent::default());
        }
    }

    /// An attempt has this result. Forgets a ticket that the client will not release.
    pub(crate) fn resulted(&self, ticket: &Ticket, result: &Result<Attempt, BackendError>) {
        let mut state = lock(&self.0);
        let Some(entry) = state.tickets.get_mut(&ticket.holder) else {
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

    /// The ticket is to be released, which the client repeats for a while: the ticket as the nodes know it, and what
    /// was sent for it.
    pub(crate) fn released(&self, ticket: &Ticket, nodes: usize) -> (Ticket, Vec<Sent>) {
        let mut state = lock(&self.0);
        let Some(entry) = state.tickets.get_mut(&ticket.holder) else {
            let late = Sent {
                late: true,
                ..Sent::default()
            };
            return (ticket.clone(), vec![late; nodes]);
        };
        let repeats = ticket.ttl * 2 + Duration::from_secs(10);
        entry.ends.get_or_insert(Instant::now() + repeats);
        (entry.as_asked(ticket), entry.sent.clone())
    }

    /// The ticket is released.
    pub(crate) fn forget(&self, ticket: &Ticket) {
        lock(&self.0).tickets.remove(&ticket.holder);
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).tickets.len()
    }
}
