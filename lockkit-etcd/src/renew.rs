//! Renewals: one beat for each session, whatever stands on it.

use std::collections::HashMap;

use lockkit_core::BackendError;
use lockkit_core::backend::{Renewal, Ticket};
use tokio::sync::oneshot;

use crate::backend::EtcdStore;
use crate::session::settle;

impl EtcdStore {
    /// Renews all of them: one beat for each session, all at once.
    pub(crate) async fn renew_all(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let desk = self.desk();
        let mut beats: Vec<(i64, oneshot::Receiver<_>)> = Vec::new();
        let mut of_ticket = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            let at = desk.known(ticket.holder).filter(|at| at.held);
            let lease = at.as_ref().map(|at| at.session.lease());
            // Holds that are not renewed together share their beats all the same, and one that was too
            // late for its asker is not lost for the next one.
            if let Some(at) = &at
                && at.session.news_since(at.told).is_some()
            {
                of_ticket.push(lease);
                continue;
            }
            if let Some(at) = at
                && !beats.iter().any(|(known, _)| Some(*known) == lease)
            {
                beats.push((at.session.lease(), at.session.ask()));
            }
            of_ticket.push(lease);
        }
        let mut answers = HashMap::new();
        for (lease, beat) in beats {
            let answer = settle(beat).await;
            answers.insert(lease, answer);
        }
        let renewal = |(ticket, lease): (&Ticket, Option<i64>)| {
            if let Some(answer) = lease.and_then(|lease| answers.get(&lease)) {
                answer.clone()?;
            }
            Ok(desk.renewed(ticket.holder).unwrap_or(Renewal::NotHeld))
        };
        tickets.iter().zip(of_ticket).map(renewal).collect()
    }
}
