//! Renewals: many leases in one statement.

use std::collections::HashSet;

use lockkit_core::BackendError;
use lockkit_core::backend::{Renewal, Ticket};
use sqlx::Row as _;

use super::open::{Sqlite, Value};
use super::statements::Batch;
use crate::statement::micros;

type Renewed = Result<Renewal, BackendError>;

impl Sqlite {
    /// Returns one result for each ticket, in order.
    pub(super) async fn renew_all(&self, tickets: &[Ticket]) -> Vec<Renewed> {
        let most = Batch::SIZES[Batch::SIZES.len() - 1];
        let mut results = Vec::with_capacity(tickets.len());
        // A statement sets one length of lease.
        for same in tickets.chunk_by(|one, next| one.ttl == next.ttl) {
            for batch in same.chunks(most) {
                match batch {
                    [alone] => results.push(self.renew_one(alone).await),
                    _ => results.extend(self.renew_batch(batch).await),
                }
            }
        }
        results
    }

    async fn renew_batch(&self, tickets: &[Ticket]) -> Vec<Renewed> {
        let mut sizes = self.statements.renew_many.iter();
        let Some(batch) = sizes.find(|batch| batch.leases >= tickets.len()) else {
            return Vec::new();
        };
        let reply = self.ask("renew", &batch.statement, values(batch, tickets));
        let rows = match reply.await {
            Ok(reply) => reply.rows,
            Err(error) => return vec![Err(error); tickets.len()],
        };
        let holders = rows.iter().filter_map(|row| row.try_get(0).ok());
        let renewed: HashSet<String> = holders.collect();
        let result =
            |ticket: &Ticket| Ok(read(ticket, renewed.contains(&ticket.holder.to_string())));
        tickets.iter().map(result).collect()
    }

    async fn renew_one(&self, ticket: &Ticket) -> Renewed {
        let renew = &self.statements.renew;
        let reply = self.ask("renew", renew, Value::lease(ticket)).await?;
        Ok(read(ticket, !reply.rows.is_empty()))
    }
}

const fn read(ticket: &Ticket, renewed: bool) -> Renewal {
    if renewed {
        Renewal::renewed(ticket.ttl)
    } else {
        Renewal::NotHeld
    }
}

/// The values of a batch; its last ticket fills the places that are left.
fn values(batch: &Batch, tickets: &[Ticket]) -> Vec<Value> {
    let lease = tickets.first().map_or(0, |ticket| micros(ticket.ttl));
    let filled = || {
        let last = tickets.last().into_iter().cycle();
        tickets.iter().chain(last).take(batch.leases)
    };
    let names = filled().map(|ticket| Value::name(&ticket.name));
    let holders = filled().map(Value::holder);
    let lease = std::iter::once(Value::Number(lease));
    lease.chain(names).chain(holders).collect()
}
