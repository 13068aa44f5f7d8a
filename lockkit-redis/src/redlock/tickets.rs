//! What a store keeps of each ticket, from its first attempt to its release.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::contract::{Attempt, Ticket};
use lockkit_core::store::lock;
use lockkit_core::{HolderId, Outcome};
use tokio::time::Instant;

use super::sent::Sent;
use crate::error::Result;

/// The number of a holder is below this. Above it is the number of times that its ticket gave nodes up: a request
/// about an earlier one, however late, does not touch a later one.
const GENERATIONS: u64 = 1 << 40;

/// The holder as clients know it.
pub(crate) fn original(holder: HolderId) -> HolderId {
    HolderId::new(holder.client(), holder.number() % GENERATIONS)
}

/// A ticket as the nodes know it, and its attempts there.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) ticket: Ticket,
    pub(crate) sent: Arc<Sent>,
}

#[derive(Debug)]
pub(crate) struct Tickets {
    nodes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tickets: HashMap<HolderId, Entry>,
    /// How many tickets were left when those were removed last that the client has given up.
    left: usize,
}

#[derive(Debug)]
struct Entry {
    generation: u64,
    sent: Arc<Sent>,
    /// Whether the client will release it.
    known: bool,
    /// When the client gives its release up.
    ends: Option<Instant>,
}

impl Entry {
    fn asked(&self, ticket: &Ticket) -> Asked {
        let holder = ticket.holder;
        let number = holder.number() + self.generation * GENERATIONS;
        let mut ticket = ticket.clone();
        ticket.holder = HolderId::new(holder.client(), number);
        let sent = Arc::clone(&self.sent);
        Asked { ticket, sent }
    }
}

impl State {
    fn forget_given_up(&mut self) {
        if self.tickets.len() > 2 * self.left + 64 {
            let now = Instant::now();
            self.tickets
                .retain(|_, entry| entry.ends.is_none_or(|end| end > now));
            self.left = self.tickets.len();
        }
    }
}

impl Tickets {
    pub(crate) fn of_nodes(nodes: usize) -> Self {
        let state = Mutex::default();
        Self { nodes, state }
    }

    /// A ticket that is to be attempted.
    pub(crate) fn attempted(&self, ticket: &Ticket) -> Asked {
        let mut state = lock(&self.state);
        state.forget_given_up();
        let entry = state.tickets.entry(ticket.holder);
        let entry = entry.or_insert_with(|| Entry {
            generation: 0,
            sent: Sent::new(self.nodes, false),
            known: false,
            ends: None,
        });
        entry.asked(ticket)
    }

    /// A ticket that holds.
    pub(crate) fn held(&self, ticket: &Ticket) -> Asked {
        match lock(&self.state).tickets.get(&ticket.holder) {
            Some(entry) => entry.asked(ticket),
            None => Asked {
                ticket: ticket.clone(),
                sent: Sent::new(self.nodes, true),
            },
        }
    }

    /// The ticket leaves the nodes, which from now on know it as another one.
    pub(crate) fn withdrawn(&self, ticket: &Ticket) {
        if let Some(entry) = lock(&self.state).tickets.get_mut(&ticket.holder) {
            entry.sent.end();
            entry.sent = Sent::new(self.nodes, false);
            entry.generation += 1;
        }
    }

    /// An attempt has this result. Forgets a ticket that the client will not release.
    pub(crate) fn resulted(&self, ticket: &Ticket, result: &Result<Attempt>) {
        let mut state = lock(&self.state);
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

    /// A ticket that is to be released, which the client repeats for a while.
    pub(crate) fn released(&self, ticket: &Ticket) -> Asked {
        if let Some(entry) = lock(&self.state).tickets.get_mut(&ticket.holder) {
            let repeats = ticket.ttl * 2 + Duration::from_secs(10);
            entry.ends.get_or_insert_with(|| Instant::now() + repeats);
            entry.sent.end();
        }
        self.held(ticket)
    }

    /// The ticket is released, or never will be.
    pub(crate) fn forget(&self, holder: HolderId) {
        lock(&self.state).tickets.remove(&holder);
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.state).tickets.len()
    }
}
