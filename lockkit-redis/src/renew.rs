//! Renewals: many holds in few requests.

use std::time::Duration;

use lockkit_core::Outcome;
use lockkit_core::contract::{Mode, Renewal, Ticket};
use redis::Cmd;

use crate::backend::RedisStore;
use crate::connection::Link;
use crate::error::{Result, text_of};
use crate::keys;
use crate::reply::{Reply, unreadable};
use crate::scripts::RENEW;

/// How many holds one step of the server renews. The server does nothing else meanwhile.
const CHUNK: usize = 500;

impl RedisStore {
    /// Renews all of them; returns one result for each, in order.
    pub(crate) async fn renew_all(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        let tickets: Vec<&Ticket> = tickets.iter().collect();
        let mut results = self.renew_by(CHUNK, &tickets).await;
        // One that is refused makes its whole chunk fail, and so do some of a slot that is on its way: only keys
        // that are all here, or all gone, are served.
        let is_refused = |result: &Result<_>| {
            let error = result.as_ref().err();
            error.is_some_and(|error| {
                error.outcome() == Outcome::Rejected || text_of(error).starts_with("TRYAGAIN")
            })
        };
        let refused: Vec<usize> = (0..results.len())
            .filter(|&at| is_refused(&results[at]))
            .collect();
        if refused.len() > 1 {
            let again: Vec<_> = refused.iter().map(|&at| tickets[at]).collect();
            let again = self.renew_by(1, &again).await;
            for (at, result) in refused.into_iter().zip(again) {
                results[at] = result;
            }
        }
        results
    }

    async fn renew_by(&self, chunk: usize, tickets: &[&Ticket]) -> Vec<Result<Renewal>> {
        let Some(shortest) = tickets.iter().map(|ticket| ticket.ttl).min() else {
            return Vec::new();
        };
        let names: Vec<_> = tickets.iter().map(|ticket| &ticket.name).collect();
        let command = |link: &Link, chunk: &[usize]| renewal_of(link, tickets, chunk);
        let (masters, step) = (&self.masters, &*RENEW);
        // Less than the client has.
        let patience = (shortest / 8).min(Duration::from_secs(1));
        let replies = masters.on_all(step, &names, chunk, patience, command);
        let mut results = vec![Err(unreadable(step.name)); tickets.len()];
        for (chunk, reply) in replies.await {
            for (place, at) in chunk.into_iter().enumerate() {
                results[at] = match &reply {
                    Err(error) => Err(error.clone()),
                    Ok((reply, acked)) => match reply.as_list().get(place) {
                        Some(Reply::Int(1)) => {
                            let renewed = Renewal::renewed(tickets[at].ttl);
                            acked.clone().map(|()| renewed)
                        }
                        Some(Reply::Int(0)) => Ok(Renewal::NotHeld),
                        _ => Err(unreadable(step.name)),
                    },
                };
            }
        }
        results
    }
}

/// The command that renews those at these places.
fn renewal_of(link: &Link, tickets: &[&Ticket], places: &[usize]) -> Cmd {
    let mut keys = Vec::new();
    let tickets = || places.iter().map(|&at| tickets[at]);
    for ticket in tickets() {
        let lock = keys::lock(&ticket.name);
        let token = keys::token(&lock);
        let shares = (ticket.mode != Mode::Exclusive).then(|| keys::shares(&lock));
        keys.extend([Some(lock), Some(token), shares].into_iter().flatten());
    }
    let mut command = RENEW.on(&keys);
    command.arg(link.token_ttl());
    for ticket in tickets() {
        command.arg(ticket.holder.to_string());
        command.arg(ticket.ttl.as_millis());
        command.arg(u8::from(ticket.mode == Mode::Exclusive));
    }
    command
}
