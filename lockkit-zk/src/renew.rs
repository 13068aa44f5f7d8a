//! Signs of life: the session's, and those of its holds.

use std::sync::Arc;

use lockkit_core::BackendError;
use lockkit_core::backend::{Renewal, Ticket};

use crate::error::of_request;
use crate::shared::Shared;

/// So many nodes are asked about in one breath.
pub(crate) const CHUNK: usize = 500;

impl Shared {
    /// Asks the leader for a sign of life and then looks at the node of each hold.
    ///
    /// A follower answers reads by itself, for seconds after it was cut off from the leader. Only what
    /// the leader had a part in, the `sync`, proves that the session lives; its sending is the base of
    /// the lease. INV-2.
    pub(crate) async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        #[cfg(feature = "mutants")]
        if let Some(answers) = self.broken_renew(tickets).await {
            return answers;
        }
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
        let sent = session.now();
        // All are handed over before the first answer is waited for; the server keeps their order.
        let sync = client.sync("/");
        let stats: Vec<_> = nodes
            .iter()
            .map(|node| node.as_ref().map(|path| client.check_stat(path)))
            .collect();
        if let Err(error) = sync.await {
            let error = of_request("renew", &error);
            return tickets.iter().map(|_| Err(error.clone())).collect();
        }
        session.acknowledge(sent);
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
