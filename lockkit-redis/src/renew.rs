//! Renewals: many holds in few requests.

use lockkit_core::contract::{Renewal, Ticket};
use lockkit_core::{BackendError, Outcome};
use redis::Cmd;

use crate::backend::RedisStore;
use crate::keys;
use crate::reply::{Reply, unreadable};
use crate::scripts::STEPS;

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
        let chunks = tickets.chunks(chunk);
        let commands = chunks.clone().map(|chunk| self.renewal_of(chunk));
        let replies = self.link.run_all(&STEPS.renew, commands).await;
        let mut results = Vec::with_capacity(tickets.len());
        for (chunk, reply) in chunks.zip(replies) {
            let renewed = reply.as_ref().map(Reply::as_list);
            results.extend(chunk.iter().enumerate().map(|(at, ticket)| {
                match renewed.map_err(BackendError::clone)?.get(at) {
                    Some(Reply::Int(1)) => Ok(Renewal::renewed(ticket.ttl)),
                    Some(Reply::Int(0)) => Ok(Renewal::NotHeld),
                    _ => Err(unreadable("renew")),
                }
            }));
        }
        results
    }

    fn renewal_of(&self, tickets: &[Ticket]) -> Cmd {
        let keys = tickets.iter().flat_map(|ticket| {
            let lock = keys::lock(&ticket.name);
            let token = keys::token(&lock);
            [lock, token]
        });
        let mut command = STEPS.renew.on(&keys.collect::<Vec<_>>());
        command.arg(self.link.token_ttl());
        for ticket in tickets {
            command.arg(ticket.holder.to_string());
            command.arg(ticket.ttl.as_millis());
        }
        command
    }
}
