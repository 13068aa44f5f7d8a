//! Renewals: many leases in one message, which waits for no locked row.

use std::collections::HashMap;

use lockkit_core::BackendError;
use lockkit_core::contract::{Renewal, Ticket};

use super::connection::{Reply, text, truth};
use super::error::ERRORS;
use super::server::Mysql;
use super::statements::SPELLING;
use crate::pool::Use;
use crate::statement::{Values, micros, push_bytes};

/// The most leases in one statement.
const BATCH: usize = 500;

type Renewed = Result<Renewal, BackendError>;

impl Mysql {
    /// Returns one result for each ticket, in order.
    pub(super) async fn renew_all(&self, tickets: &[Ticket]) -> Vec<Renewed> {
        let mut results = vec![Ok(Renewal::NotHeld); tickets.len()];
        let mut order: Vec<usize> = (0..tickets.len()).collect();
        // A statement sets one length of lease.
        order.sort_by_key(|index| tickets[*index].ttl);
        for same in order.chunk_by(|one, next| tickets[*one].ttl == tickets[*next].ttl) {
            for batch in same.chunks(BATCH) {
                let of: Vec<&Ticket> = batch.iter().map(|index| &tickets[*index]).collect();
                let renew = self.statements.renew.with(&values(&of), SPELLING);
                let replies = self.ask("renew", Use::Renewal, &renew).await;
                for (index, result) in batch.iter().zip(read(&of, replies)) {
                    results[*index] = result;
                }
            }
        }
        results
    }
}

/// Tells the leases that were renewed, those that were skipped, and those that have ended.
fn read(tickets: &[&Ticket], replies: Result<Vec<Reply>, BackendError>) -> Vec<Renewed> {
    let replies = match replies {
        Ok(replies) => replies,
        Err(error) => return vec![Err(error); tickets.len()],
    };
    let rows = replies.iter().flat_map(|reply| &reply.rows);
    let renewed: HashMap<String, bool> = rows
        .filter_map(|row| Some((text(row, 0)?, truth(row, 1))))
        .collect();
    let result = |ticket: &&Ticket| match renewed.get(&ticket.holder.to_string()) {
        Some(true) => Ok(Renewal::renewed(ticket.ttl)),
        Some(false) => Err(ERRORS.skipped("renew")),
        None => Ok(Renewal::NotHeld),
    };
    tickets.iter().map(result).collect()
}

fn values<'a>(tickets: &[&Ticket]) -> Values<'a> {
    let (mut names, mut holders) = (String::new(), String::new());
    for (index, ticket) in tickets.iter().enumerate() {
        if index > 0 {
            names.push_str(", ");
            holders.push_str(", ");
        }
        push_bytes(&mut names, ticket.name.as_str().as_bytes(), SPELLING);
        holders.push_str(&format!("'{}'", ticket.holder));
    }
    let ttl = tickets.first().map_or(0, |ticket| micros(ticket.ttl));
    let count = i64::try_from(tickets.len()).unwrap_or(i64::MAX);
    Values::new()
        .text("names", names)
        .text("holders", holders)
        .number("ttl", ttl)
        .number("count", count)
}
