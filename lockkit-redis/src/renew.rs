//! Renewals: many holds in few requests.

use lockkit_core::contract::{Renewal, Ticket};
use lockkit_core::{BackendError, Outcome};

use crate::backend::{RedisStore, millis};
use crate::keys;
use crate::reply::{Reply, unreadable};

/// How many holds one step of the server renews. The server does nothing else meanwhile.
const CHUNK: usize = 500;

impl RedisStore {
    /// Renews all of them; returns one result for each, in order.
    pub(crate) async fn renew_all(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let mut results = self.renew_by(CHUNK, tickets).await;
        // One that is refused makes its whole chunk fail.
        let rejected = |result: &Result<_, BackendError>| {
            let error = result.as_ref().err();
            error.is_some_and(|error| error.outcome() == Outcome::Rejected)
        };
        let refused: Vec<usize> = (0..results.len())
            .filter(|&at| rejected(&results[at]))
            .collect();
        if refused.len() > 1 {
            let again: Vec<Ticket> = refused.iter().map(|&at| tickets[at].clone()).collect();
            for (at, result) in refused.into_iter().zip(self.renew_by(1, &again).await) {
                results[at] = result;
            }
        }
        results
    }

    /// Renews them in chunks, in one pipeline.
    async fn renew_by(
        &self,
        chunk: usize,
        tickets: &[Ticket],
    ) -> Vec<Result<Renewal, BackendError>> {
        let token_ttl = self.link().token_ttl();
        let chunks = tickets.chunks(chunk);
        let calls: Vec<_> = chunks.clone().map(|it| words(it, token_ttl)).collect();
        let replies = self
            .link()
            .steps("renew", &self.steps().renew, &calls)
            .await;
        let mut results = Vec::with_capacity(tickets.len());
        for (chunk, reply) in chunks.zip(replies) {
            let reply = reply.map(Reply::from);
            match reply.as_ref().map(Reply::as_list) {
                Ok(renewed) if renewed.len() == chunk.len() => {
                    results.extend(chunk.iter().zip(renewed).map(|(ticket, renewed)| {
                        Ok(if renewed.as_int() == Some(1) {
                            Renewal::renewed(ticket.ttl)
                        } else {
                            Renewal::NotHeld
                        })
                    }));
                }
                Ok(_) => results.extend(chunk.iter().map(|_| Err(unreadable("renew")))),
                Err(error) => results.extend(chunk.iter().map(|_| Err(error.clone()))),
            }
        }
        results
    }
}

/// The keys and arguments of a renewal.
fn words(tickets: &[Ticket], token_ttl: u64) -> (Vec<String>, Vec<String>) {
    let mut keys = Vec::with_capacity(2 * tickets.len());
    let mut arguments = Vec::with_capacity(2 * tickets.len() + 1);
    arguments.push(token_ttl.to_string());
    for ticket in tickets {
        let lock = keys::lock(&ticket.name);
        let token = keys::token(&lock);
        keys.extend([lock, token]);
        arguments.extend([ticket.holder.to_string(), millis(ticket.ttl)]);
    }
    (keys, arguments)
}
