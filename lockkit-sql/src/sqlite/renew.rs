//! Renewals: many leases in one transaction.

use std::collections::HashSet;
use std::sync::Arc;

use lockkit_core::BackendError;
use lockkit_core::backend::{Renewal, Ticket};
use sqlx::Row as _;

use super::SPELLING;
use super::open::Value;
use super::steps::{Sqlite, lease};
use crate::statement::{Statement, Values, micros};

type Renewed = Result<Renewal, BackendError>;

/// A statement for so many leases. It is ready after its first use, so that there are few of them;
/// what a batch is short of is filled up with its last lease.
#[derive(Debug)]
pub(super) struct Batch {
    leases: usize,
    statement: Arc<str>,
}

impl Batch {
    /// Rising. The last one keeps others from the file for about a millisecond.
    const SIZES: [usize; 3] = [8, 40, 200];

    pub(super) fn all(statement: &Statement) -> [Self; 3] {
        Self::SIZES.map(|leases| {
            let numbers = |from: usize| {
                let each = (from..from + leases).map(|number| format!("?{number}"));
                each.collect::<Vec<_>>().join(", ")
            };
            let values = Values::new()
                .text("names", numbers(2))
                .text("holders", numbers(2 + leases));
            Self {
                leases,
                statement: statement.with(&values, SPELLING).into(),
            }
        })
    }

    fn values(&self, tickets: &[Ticket]) -> Vec<Value> {
        let lease = tickets.first().map_or(0, |ticket| micros(ticket.ttl));
        let filled = || {
            let last = tickets.last().into_iter().cycle();
            tickets.iter().chain(last).take(self.leases)
        };
        let names = filled().map(|ticket| Value::name(&ticket.name));
        let holders = filled().map(Value::holder);
        let lease = std::iter::once(Value::Number(lease));
        lease.chain(names).chain(holders).collect()
    }
}

impl Sqlite {
    /// One answer for each, in order.
    pub(super) async fn renew_all(&self, tickets: &[Ticket]) -> Vec<Renewed> {
        let most = Batch::SIZES[Batch::SIZES.len() - 1];
        let mut answers = Vec::with_capacity(tickets.len());
        // A statement sets one length of lease.
        for same in tickets.chunk_by(|one, next| one.ttl == next.ttl) {
            for batch in same.chunks(most) {
                match batch {
                    [alone] => answers.push(self.renew_one(alone).await),
                    _ => answers.extend(self.renew_batch(batch).await),
                }
            }
        }
        answers
    }

    async fn renew_batch(&self, tickets: &[Ticket]) -> Vec<Renewed> {
        let mut sizes = self.statements().renew_many.iter();
        let Some(batch) = sizes.find(|batch| batch.leases >= tickets.len()) else {
            return Vec::new();
        };
        let values = batch.values(tickets);
        let rows = match self.run("renew", &batch.statement, values).await {
            Ok(rows) => rows,
            Err(error) => return vec![Err(error); tickets.len()],
        };
        let holders = rows.iter().filter_map(|row| row.try_get(0).ok());
        let renewed: HashSet<String> = holders.collect();
        let answer = |ticket: &Ticket| {
            Ok(if renewed.contains(&ticket.holder.to_string()) {
                Renewal::renewed(ticket.ttl)
            } else {
                Renewal::NotHeld
            })
        };
        tickets.iter().map(answer).collect()
    }

    async fn renew_one(&self, ticket: &Ticket) -> Renewed {
        let renew = &self.statements().renew;
        let rows = self.run("renew", renew, lease(ticket)).await?;
        Ok(if rows.is_empty() {
            Renewal::NotHeld
        } else {
            Renewal::renewed(ticket.ttl)
        })
    }
}
