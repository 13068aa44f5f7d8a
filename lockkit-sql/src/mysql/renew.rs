//! Renewals: many leases in one statement, which waits for none of them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lockkit_core::BackendError;
use lockkit_core::backend::{Renewal, Ticket};

use super::error::ERRORS;
use super::kept::Message;
use super::message::{self, ask};
use super::seen::Seen;
use super::session::{failed, is_conflict};
use super::steps::Mysql;
use super::{SPELLING, Statements};
use crate::pool::Use;
use crate::statement::{Values, micros, push_bytes};

/// The most leases in one statement.
const BATCH: usize = 500;

/// So few are renewed one by one: a statement for many needs a temporary table, which takes the
/// server longer than they do.
const FEW: usize = 4;

type Renewed = Result<Renewal, BackendError>;

impl Mysql {
    pub(super) async fn renew_leases(&self, tickets: &[Ticket]) -> Vec<Renewed> {
        // A statement sets one length of lease.
        let mut groups: BTreeMap<Duration, Vec<usize>> = BTreeMap::new();
        for (index, ticket) in tickets.iter().enumerate() {
            groups.entry(ticket.ttl).or_default().push(index);
        }
        let mut answers: Vec<Option<Renewed>> = vec![None; tickets.len()];
        for group in groups.into_values() {
            for batch in group.chunks(BATCH) {
                let of: Vec<&Ticket> = batch.iter().map(|index| &tickets[*index]).collect();
                for (index, answer) in batch.iter().zip(self.renew_batch(&of).await) {
                    answers[*index] = Some(answer);
                }
            }
        }
        let missing = || Err(ERRORS.unreadable("renew"));
        let answers = answers.into_iter();
        answers
            .map(|answer| answer.unwrap_or_else(missing))
            .collect()
    }

    async fn renew_batch(&self, tickets: &[&Ticket]) -> Vec<Renewed> {
        if tickets.len() <= FEW {
            let mut answers = Vec::with_capacity(tickets.len());
            for ticket in tickets {
                answers.push(self.renew_one(ticket).await);
            }
            return answers;
        }
        match self.ask_renewal(tickets).await {
            Ok(answers) => answers,
            Err(error) => vec![Err(error); tickets.len()],
        }
    }

    async fn renew_one(&self, ticket: &Ticket) -> Renewed {
        let renew = self
            .statements
            .renew_one
            .with(&Values::of(ticket), SPELLING);
        let answers = self.ask_by("renew", Use::Renewal, &renew).await?;
        if answers.iter().any(|answer| answer.changed > 0) {
            return Ok(Renewal::renewed(ticket.ttl));
        }
        let look = self.statements.look_again(ticket);
        let answers = self.ask_by("renew", Use::Renewal, &look).await?;
        match Seen::read(answers.first()) {
            Some(seen) if seen.stands() => Err(ERRORS.skipped("renew")),
            _ => Ok(Renewal::NotHeld),
        }
    }

    async fn ask_renewal(&self, tickets: &[&Ticket]) -> Result<Vec<Renewed>, BackendError> {
        let all = u64::try_from(tickets.len()).unwrap_or(u64::MAX);
        let mut taken = self.pool.take("renew", Use::Renewal).await?;
        let (connection, way) = taken.parts();
        let renew = Message::Text(self.statements.renew(tickets));
        let mut answered = renew.send(connection, way).await;
        if answered.as_ref().is_err_and(is_conflict) {
            answered = renew.send(connection, way).await;
        }
        let mut result = match answered {
            Ok(answers) if answers.iter().map(|it| it.changed).sum::<u64>() == all => {
                let renewed = |ticket: &&Ticket| Ok(Renewal::renewed(ticket.ttl));
                Ok(tickets.iter().map(renewed).collect())
            }
            Ok(_) => Err(None),
            Err(error) => Err(Some(error)),
        };
        if matches!(result, Err(None)) {
            // On the same connection, which remembers by which clock reading they were renewed.
            result = match ask(connection, &self.statements.renewed(tickets)).await {
                Ok(answers) => Ok(told_apart(tickets, &answers)),
                Err(error) => Err(Some(error)),
            };
        }
        match result {
            Ok(answers) => {
                taken.put_back();
                Ok(answers)
            }
            Err(Some(error)) => Err(failed("renew", taken, &error)),
            Err(None) => Err(ERRORS.unreadable("renew")),
        }
    }
}

/// Which were renewed, which were passed over because somebody had them locked, and which have ended.
fn told_apart(tickets: &[&Ticket], answers: &[message::Answer]) -> Vec<Renewed> {
    let rows = answers.iter().flat_map(|answer| &answer.rows);
    let stand: HashMap<String, bool> = rows
        .filter_map(|row| Some((message::text(row, 0)?, message::truth(row, 1))))
        .collect();
    let answer = |ticket: &&Ticket| match stand.get(&ticket.holder.to_string()) {
        Some(true) => Ok(Renewal::renewed(ticket.ttl)),
        Some(false) => Err(ERRORS.skipped("renew")),
        None => Ok(Renewal::NotHeld),
    };
    tickets.iter().map(answer).collect()
}

impl Statements {
    fn renew(&self, tickets: &[&Ticket]) -> String {
        self.renew.with(&values(tickets), SPELLING)
    }

    fn renewed(&self, tickets: &[&Ticket]) -> String {
        self.renewed.with(&values(tickets), SPELLING)
    }
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
