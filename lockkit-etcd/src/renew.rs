//! Renewals: one keep-alive for each session, however many holds it has.

use std::collections::HashMap;

use lockkit_core::contract::{Renewal, Ticket};

use crate::error::Result;
use crate::queue::Contender;
use crate::shared::Shared;

impl Shared {
    /// Renews all tickets, with one keep-alive for each session, at the same time.
    pub(crate) async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        let held = |ticket: &Ticket| self.known(ticket.holder).filter(|at| at.held);
        let holds: Vec<_> = tickets.iter().map(held).collect();
        let mut requests = HashMap::new();
        for at in holds.iter().flatten() {
            let session = &at.session;
            // Holds share the keep-alives of their session, also if they are not renewed together. A result
            // that came too late for one renewal serves the next.
            if session.is_alive() && !session.is_renewed_since(at.reported) {
                requests
                    .entry(session.id())
                    .or_insert_with(|| session.keep_alive());
            }
        }
        let mut results = HashMap::new();
        for (lease, request) in requests {
            results.insert(lease, request.await);
        }
        let renewal = |(ticket, at): (&Ticket, &Option<_>)| {
            let lease = at.as_ref().map(|at: &Contender| at.session.id());
            if let Some(result) = lease.and_then(|lease| results.get(&lease)) {
                result.clone()?;
            }
            Ok(self.renewed(ticket.holder).unwrap_or(Renewal::NotHeld))
        };
        tickets.iter().zip(&holds).map(renewal).collect()
    }
}
