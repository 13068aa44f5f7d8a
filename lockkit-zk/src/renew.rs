//! Heartbeats of the session, and checks of its holds.

use std::sync::Arc;

use lockkit_core::contract::{Renewal, Ticket};

use crate::error::Result;
use crate::shared::Shared;

/// The most nodes that one pipelined round trip checks.
pub(crate) const CHUNK: usize = 500;

impl Shared {
    /// Sends a heartbeat to the leader and then checks the node of each hold.
    ///
    /// A follower answers reads alone, for seconds after it was cut off from the leader. Only the `sync`,
    /// which needs the leader, proves that the session is alive. The lease counts from its sending. INV-2.
    pub(crate) async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        let session = self.sessions.present();
        let held = |ticket: &Ticket| {
            let contender = self.contender(ticket.holder)?;
            let present = Arc::ptr_eq(&contender.session, &session);
            present.then(|| contender.held_path())?
        };
        let paths: Vec<Option<String>> = tickets.iter().map(held).collect();
        let gone = |ticket: &Ticket| match self.contender(ticket.holder) {
            Some(contender) if contender.session.has_ended() => Renewal::SessionEnded,
            _ => Renewal::NotHeld,
        };
        if session.has_ended() || paths.iter().all(Option::is_none) {
            return tickets.iter().map(gone).map(Ok).collect();
        }
        if let Err(error) = session.connected("renew").await {
            return vec![Err(error); tickets.len()];
        }
        // Sends all requests before it waits for the first answer. The server keeps their order.
        let heartbeat = session.heartbeat("renew");
        let stats = paths
            .iter()
            .map(|path| Some(session.stat("renew", path.as_ref()?)));
        let stats: Vec<_> = stats.collect();
        if let Err(error) = heartbeat.await {
            return vec![Err(error); tickets.len()];
        }
        let mut answers = Vec::with_capacity(tickets.len());
        for (ticket, stat) in tickets.iter().zip(stats) {
            let stat = match stat {
                Some(stat) => stat.await,
                None => Ok(None),
            };
            answers.push(stat.map(|stat| match stat {
                Some(stat) if stat.ephemeral_owner == session.id() => Renewal::Renewed {
                    since: Some(session.since()),
                    ttl: session.lease,
                },
                _ => gone(ticket),
            }));
        }
        answers
    }
}
