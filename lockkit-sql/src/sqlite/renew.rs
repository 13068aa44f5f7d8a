//! Renewals: many leases in one statement.

use std::collections::HashSet;

use lockkit_core::BackendError;
use lockkit_core::contract::{Renewal, Ticket};
use sqlx::Row as _;

use super::open::{Sqlite, Value};
use crate::statement::micros;

/// The most leases in one statement, which keeps others from the file for about a millisecond.
const BATCH: usize = 200;

type Renewed = Result<Renewal, BackendError>;

impl Sqlite {
    /// Returns one result for each ticket, in order.
    pub(super) async fn renew_all(&self, tickets: &[Ticket]) -> Vec<Renewed> {
        let mut results = Vec::with_capacity(tickets.len());
        // A statement sets one length of lease.
        for same in tickets.chunk_by(|one, next| one.ttl == next.ttl) {
            for batch in same.chunks(BATCH) {
                results.extend(self.renew_batch(batch).await);
            }
        }
        results
    }

    async fn renew_batch(&self, tickets: &[Ticket]) -> Vec<Renewed> {
        let values = [
            Value::Number(tickets.first().map_or(0, |ticket| micros(ticket.ttl))),
            array(tickets, |ticket| hexadecimal(ticket.name.as_str())),
            array(tickets, |ticket| ticket.holder.to_string()),
        ];
        let rows = match self.ask("renew", &self.statements.renew, values).await {
            Ok(reply) => reply.rows,
            Err(error) => return vec![Err(error); tickets.len()],
        };
        let holders = rows.iter().filter_map(|row| row.try_get(0).ok());
        let renewed: HashSet<String> = holders.collect();
        let result = |ticket: &Ticket| {
            Ok(if renewed.contains(&ticket.holder.to_string()) {
                Renewal::renewed(ticket.ttl)
            } else {
                Renewal::NotHeld
            })
        };
        tickets.iter().map(result).collect()
    }
}

/// A JSON array of texts that need no escapes.
fn array(tickets: &[Ticket], text: impl Fn(&Ticket) -> String) -> Value {
    let texts: Vec<String> = tickets.iter().map(text).collect();
    Value::Text(format!("[\"{}\"]", texts.join("\",\"")))
}

fn hexadecimal(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}
