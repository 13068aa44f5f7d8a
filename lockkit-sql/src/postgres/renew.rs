//! Renewals: many leases in one statement, which waits for none of them.

use lockkit_core::BackendError;
use lockkit_core::contract::{Renewal, Ticket};
use sqlx::Row as _;

use super::error::ERRORS;
use super::store::Postgres;
use crate::pool::Use;

/// So many holds are renewed by one statement.
const CHUNK: usize = 500;

impl Postgres {
    pub(super) async fn renew_all(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let mut answers = Vec::with_capacity(tickets.len());
        for chunk in tickets.chunks(CHUNK) {
            answers.extend(self.renew_chunk(chunk).await);
        }
        answers
    }

    async fn renew_chunk(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let text = self.statements.renew(tickets);
        let rows = match self.ask("renew", Use::Renewal, text).await {
            Ok(rows) => rows,
            Err(error) => return tickets.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut answers: Vec<Result<Renewal, BackendError>> = tickets
            .iter()
            .map(|_| Err(ERRORS.unreadable("renew")))
            .collect();
        for row in rows {
            let number = row.try_get::<i32, _>(0).ok();
            let number = number.and_then(|n| usize::try_from(n).ok());
            let said = (row.try_get(1), row.try_get(2));
            let slot = number.and_then(|n| Some((answers.get_mut(n)?, tickets.get(n)?)));
            let Some((answer, ticket)) = slot else {
                continue;
            };
            *answer = match said {
                (Ok(true), Ok(_)) => Ok(Renewal::renewed(ticket.ttl)),
                (Ok(false), Ok(false)) => Ok(Renewal::NotHeld),
                (Ok(false), Ok(true)) => Err(ERRORS.skipped("renew")),
                _ => continue,
            };
        }
        answers
    }
}
