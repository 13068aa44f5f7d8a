//! A ticket as the nodes know it, from its first attempt to its release.

use std::sync::Arc;

use lockkit_core::HolderId;
use lockkit_core::contract::Ticket;

use super::nodes::Nodes;
use super::sent::Sent;

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

impl Nodes {
    /// A ticket that is to be attempted, and the number of the attempt.
    pub(crate) fn attempted(&self, ticket: &Ticket) -> (u64, Asked) {
        let number = self.tickets.attempted(ticket);
        self.tickets.with(ticket.holder, |entry| {
            let first = || (0, Sent::new(self.all.len(), false));
            entry.data.get_or_insert_with(first);
        });
        (number, self.held(ticket))
    }

    /// A ticket that holds.
    pub(crate) fn held(&self, ticket: &Ticket) -> Asked {
        let known = self.tickets.with(ticket.holder, |it| it.data.clone());
        let unknown = || (0, Sent::new(self.all.len(), true));
        let (generation, sent) = known.flatten().unwrap_or_else(unknown);
        let (holder, mut ticket) = (ticket.holder, ticket.clone());
        let number = holder
            .number()
            .wrapping_add(generation.wrapping_mul(GENERATIONS));
        ticket.holder = HolderId::new(holder.client(), number);
        Asked { ticket, sent }
    }

    /// The ticket leaves the nodes, which from now on know it as another one.
    pub(crate) fn withdrawn(&self, ticket: &Ticket) {
        self.tickets.with(ticket.holder, |entry| {
            if let Some((generation, sent)) = &mut entry.data {
                sent.end();
                *sent = Sent::new(self.all.len(), false);
                *generation += 1;
            }
        });
    }

    /// A ticket that is to be released.
    pub(crate) fn released(&self, ticket: &Ticket) -> Asked {
        let asked = self.held(ticket);
        asked.sent.end();
        asked
    }
}
