//! Heartbeats of the session, and checks of its holds.

use std::sync::Arc;

use lockkit_core::BackendError;
use lockkit_core::contract::{Renewal, Ticket};

use crate::error::of_request;
use crate::shared::Shared;

/// The most nodes that one pipelined round trip checks.
pub(crate) const CHUNK: usize = 500;

impl Shared {
    /// Sends a heartbeat to the leader and then checks the node of each hold.
    ///
    /// A follower answers reads alone, for seconds after it was cut off from the leader. Only the `sync`,
    /// which needs the leader, proves that the session is alive. The lease counts from its sending. INV-2.
    pub(crate) async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let session = self.sessions.present();
        let nodes: Vec<Option<String>> = tickets
            .iter()
            .map(|ticket| {
                let contender = self.contender(ticket.holder)?;
                let ours = contender.granted && Arc::ptr_eq(&contender.session, &session);
                ours.then(|| contender.own_path())?
            })
            .collect();
        if session.has_ended() || nodes.iter().all(Option::is_none) {
            return tickets.iter().map(|_| Ok(Renewal::NotHeld)).collect();
        }
        if let Err(error) = session.connected("renew").await {
            return tickets.iter().map(|_| Err(error.clone())).collect();
        }
        let client = session.client();
        // Sends all requests before it waits for the first answer. The server keeps their order.
        let heartbeat = session.heartbeat("renew");
        let stats: Vec<_> = nodes
            .iter()
            .map(|node| node.as_ref().map(|path| client.check_stat(path)))
            .collect();
        if let Err(error) = heartbeat.await {
            return tickets.iter().map(|_| Err(error.clone())).collect();
        }
        let mut answers = Vec::with_capacity(tickets.len());
        for stat in stats {
            let stat = match stat {
                Some(stat) => stat.await.map_err(|error| of_request("renew", &error)),
                None => Ok(None),
            };
            answers.push(stat.map(|stat| match stat {
                Some(stat) if stat.ephemeral_owner == session.id() => Renewal::Renewed {
                    since: Some(session.since()),
                    ttl: session.lease(),
                },
                _ => Renewal::NotHeld,
            }));
        }
        answers
    }
}
