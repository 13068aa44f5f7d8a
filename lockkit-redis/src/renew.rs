//! Renewals: many holds in few requests.

use lockkit_core::contract::{Mode, Renewal, Ticket};
use lockkit_core::{BackendError, Outcome};
use redis::Cmd;

use crate::backend::RedisStore;
use crate::keys;
use crate::reply::{Reply, unreadable};
use crate::scripts::{STEPS, Step};

/// How many holds one step of the server renews. The server does nothing else meanwhile.
const CHUNK: usize = 500;

impl RedisStore {
    /// Renews all of them; returns one result for each, in order.
    pub(crate) async fn renew_all(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let is_exclusive = |ticket: &&Ticket| ticket.mode == Mode::Exclusive;
        let (exclusive, shared): (Vec<_>, Vec<_>) = tickets.iter().partition(is_exclusive);
        let (exclusive, shared) = tokio::join!(
            self.renew_with(&STEPS.renew, &exclusive),
            self.renew_with(&STEPS.renew_shares, &shared)
        );
        let (mut exclusive, mut shared) = (exclusive.into_iter(), shared.into_iter());
        let result = |ticket| match is_exclusive(&ticket) {
            true => exclusive.next(),
            false => shared.next(),
        };
        tickets.iter().filter_map(result).collect()
    }

    async fn renew_with(
        &self,
        step: &Step,
        tickets: &[&Ticket],
    ) -> Vec<Result<Renewal, BackendError>> {
        let mut results = self.renew_by(CHUNK, step, tickets).await;
        // One that is refused makes its whole chunk fail.
        let rejected = |result: &Result<_, BackendError>| {
            let error = result.as_ref().err();
            error.is_some_and(|error| error.outcome() == Outcome::Rejected)
        };
        let refused: Vec<usize> = (0..results.len())
            .filter(|&at| rejected(&results[at]))
            .collect();
        if refused.len() > 1 {
            let again: Vec<_> = refused.iter().map(|&at| tickets[at]).collect();
            let again = self.renew_by(1, step, &again).await;
            for (at, result) in refused.into_iter().zip(again) {
                results[at] = result;
            }
        }
        results
    }

    /// Renews them in chunks, in one pipeline.
    async fn renew_by(
        &self,
        chunk: usize,
        step: &Step,
        tickets: &[&Ticket],
    ) -> Vec<Result<Renewal, BackendError>> {
        if tickets.is_empty() {
            return Vec::new();
        }
        let chunks = tickets.chunks(chunk);
        let commands = chunks.clone().map(|chunk| self.renewal_of(step, chunk));
        let (replies, acked) = self.link.run_leases(step, commands).await;
        let mut results = Vec::with_capacity(tickets.len());
        for (chunk, reply) in chunks.zip(replies) {
            let renewed = reply.as_ref().map(Reply::as_list);
            results.extend(chunk.iter().enumerate().map(|(at, ticket)| {
                match renewed.map_err(BackendError::clone)?.get(at) {
                    Some(Reply::Int(1)) => acked
                        .check(step.name)
                        .map(|()| Renewal::renewed(ticket.ttl)),
                    Some(Reply::Int(0)) => Ok(Renewal::NotHeld),
                    _ => Err(unreadable("renew")),
                }
            }));
        }
        results
    }

    fn renewal_of(&self, step: &Step, tickets: &[&Ticket]) -> Cmd {
        let mut keys = Vec::new();
        for ticket in tickets {
            let lock = keys::lock(&ticket.name);
            let token = keys::token(&lock);
            let shares = (ticket.mode != Mode::Exclusive).then(|| keys::shares(&lock));
            keys.extend([Some(lock), Some(token), shares].into_iter().flatten());
        }
        let mut command = step.on(&keys);
        command.arg(self.link.token_ttl());
        for ticket in tickets {
            command.arg(ticket.holder.to_string());
            command.arg(ticket.ttl.as_millis());
        }
        command
    }
}
