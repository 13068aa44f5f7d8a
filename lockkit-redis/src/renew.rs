//! Renewals: many holds in few requests.

use lockkit_core::backend::{Renewal, Ticket};
use lockkit_core::{BackendError, Outcome};

use crate::backend::{RedisStore, millis};
use crate::error::{is_no_script, of_request};
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
            for (at, reply) in refused.into_iter().zip(self.renew_by(1, &again).await) {
                results[at] = reply;
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
        let chunks: Vec<&[Ticket]> = tickets.chunks(chunk).collect();
        let mut replies = self.renew_chunks(&chunks, false).await;
        let unknown: Vec<usize> = (0..chunks.len())
            .filter(|&at| replies.get(at).is_some_and(Option::is_none))
            .collect();
        if !unknown.is_empty() {
            let again: Vec<&[Ticket]> = unknown.iter().map(|&at| chunks[at]).collect();
            let second = self.renew_chunks(&again, true).await;
            for (at, reply) in unknown.into_iter().zip(second) {
                replies[at] = reply;
            }
        }
        let mut results = Vec::with_capacity(tickets.len());
        for (chunk, reply) in chunks.iter().zip(replies) {
            match reply.unwrap_or_else(|| Err(unreadable("renew"))) {
                Ok(renewed) if renewed.len() == chunk.len() => {
                    results.extend(chunk.iter().zip(renewed).map(|(ticket, renewed)| {
                        Ok(if renewed {
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

    /// Renews chunks; `None` for a chunk whose script the server does not have.
    async fn renew_chunks(
        &self,
        chunks: &[&[Ticket]],
        whole: bool,
    ) -> Vec<Option<Result<Vec<bool>, BackendError>>> {
        let (link, step) = (self.link(), &self.steps().renew);
        let token_ttl = link.token_ttl().to_string();
        let command = |chunk: &&[Ticket]| {
            let words = RenewWords::of(chunk, &token_ttl);
            let (keys, arguments) = (words.keys(), words.arguments());
            if whole {
                step.by_text(&keys, &arguments)
            } else {
                step.by_digest(&keys, &arguments)
            }
        };
        match link
            .batch("renew", chunks.iter().map(command).collect())
            .await
        {
            Ok(replies) => replies
                .into_iter()
                .map(|reply| match reply {
                    Err(error) if !whole && is_no_script(&error) => None,
                    Err(error) => Some(Err(of_request("renew", &error))),
                    Ok(value) => {
                        let renewed = Reply::from(value);
                        let renewed = renewed.as_list().iter().map(|one| one.as_int() == Some(1));
                        Some(Ok(renewed.collect()))
                    }
                })
                .collect(),
            Err(error) => chunks.iter().map(|_| Some(Err(error.clone()))).collect(),
        }
    }
}

/// The keys and arguments of a renewal.
struct RenewWords {
    keys: Vec<String>,
    arguments: Vec<String>,
}

impl RenewWords {
    fn of(tickets: &[Ticket], token_ttl: &str) -> Self {
        let mut keys = Vec::with_capacity(2 * tickets.len());
        let mut arguments = Vec::with_capacity(2 * tickets.len() + 1);
        arguments.push(token_ttl.to_owned());
        for ticket in tickets {
            let lock = keys::lock(&ticket.name);
            let token = keys::token(&lock);
            keys.extend([lock, token]);
            arguments.extend([ticket.holder.to_string(), millis(ticket.ttl)]);
        }
        Self { keys, arguments }
    }

    fn keys(&self) -> Vec<&str> {
        self.keys.iter().map(String::as_str).collect()
    }

    fn arguments(&self) -> Vec<&str> {
        self.arguments.iter().map(String::as_str).collect()
    }
}
