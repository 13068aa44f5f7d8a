//! Steps that are alike on several databases.

use std::collections::HashMap;
use std::iter::once;
use std::time::Duration;

use lockkit_core::contract::{LockState, Renewal, Ticket};
use lockkit_core::{BackendError, FencingToken, HolderId, LockName};
use tokio::time::sleep;

use crate::config::{Options, Schema};
use crate::driver::{Driver, changed, rows};
use crate::error::Problem;
use crate::pool::{Pool, Use};
use crate::table::{Which, misfit};
use crate::template::{Template, Values, micros};

/// Creates the table if it is missing and may be created, and compares its columns.
pub(crate) async fn check_table<D: Driver>(
    pool: &Pool<D>,
    columns: &Template,
    create: &str,
    expected: &[(&str, &str)],
    options: &Options,
) -> Result<(), BackendError> {
    let mut found = columns_of(pool, columns).await?;
    if found.is_empty() && options.schema == Schema::Create {
        pool.ask("open", Use::Step, create).await?;
        found = columns_of(pool, columns).await?;
    }
    match misfit(&options.table, expected, &found) {
        None => Ok(()),
        Some(text) => Err(D::ERRORS.rejected("open", Problem::Schema, text)),
    }
}

/// The columns of the table and their types; empty if there is no table.
async fn columns_of<D: Driver>(
    pool: &Pool<D>,
    columns: &Template,
) -> Result<Vec<(String, String)>, BackendError> {
    let columns = columns.text(&Values::new());
    let replies = pool.ask("open", Use::Step, &columns).await?;
    let columns = rows(&replies).map(|row| Some((D::text(row, 0)?, D::text(row, 1)?)));
    let columns: Option<_> = columns.collect();
    columns.ok_or_else(|| D::ERRORS.unreadable("open"))
}

/// A row of the table.
#[derive(Debug)]
struct Row {
    name: Vec<u8>,
    holder: Option<String>,
    token: i64,
    /// The rest of the lease in microseconds; not positive when it has ended.
    left: i64,
}

impl Row {
    fn read<D: Driver>(row: &D::Row) -> Option<Self> {
        Some(Self {
            name: D::bytes(row, 0)?,
            holder: D::text(row, 1),
            token: D::number(row, 2)?,
            left: D::number(row, 3)?,
        })
    }

    /// The state as operators see it; `None` if another program has inserted a name that is not valid.
    fn state(&self) -> Option<LockState> {
        let state = LockState::new(name_of(&self.name)?).with_token(token(self.token));
        let Some(holder) = self.holder.clone() else {
            return Some(state);
        };
        // Parentheses show that another program has set the holder.
        let holder = match holder.parse::<HolderId>() {
            Ok(_) => holder,
            Err(_) => format!("({holder})"),
        };
        let left = u64::try_from(self.left).ok().map(Duration::from_micros);
        Some(state.with_holder(holder).with_remaining(left))
    }
}

/// The name that a row is for.
pub(crate) fn name_of(bytes: &[u8]) -> Option<LockName> {
    LockName::new(std::str::from_utf8(bytes).ok()?).ok()
}

/// A token as the table keeps it.
pub(crate) fn token(number: i64) -> Option<FencingToken> {
    u64::try_from(number).ok().and_then(FencingToken::new)
}

/// The pauses before each further look at a row that is free and locked: none before the first, then six
/// that double from a millisecond. Longer than any of our statements, or a table scan, keeps a row locked.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> + Send {
    once(Duration::ZERO).chain((0..6).map(|pause| Duration::from_millis(1 << pause)))
}

/// Sends a statement that returns rows of the table.
pub(crate) async fn list<D: Driver>(
    pool: &Pool<D>,
    operation: &'static str,
    text: &str,
) -> Result<Vec<LockState>, BackendError> {
    let rows = read(pool, operation, text).await?;
    Ok(rows.iter().filter_map(Row::state).collect())
}

async fn read<D: Driver>(
    pool: &Pool<D>,
    operation: &'static str,
    text: &str,
) -> Result<Vec<Row>, BackendError> {
    let replies = pool.ask(operation, Use::Step, text).await?;
    let rows: Option<_> = rows(&replies).map(Row::read::<D>).collect();
    rows.ok_or_else(|| D::ERRORS.unreadable(operation))
}

/// Reads the hold of a lock with `look` and ends it with `end`, which skips a locked row.
pub(crate) async fn break_lock<D: Driver>(
    pool: &Pool<D>,
    look: &Template,
    end: &Template,
    name: &LockName,
) -> Result<Option<LockState>, BackendError> {
    let look = look.text(&Values::condition(Which::Name(name), D::SYNTAX));
    let Some(row) = read(pool, "break", &look).await?.pop() else {
        return Ok(None);
    };
    let Some(holder) = &row.holder else {
        return Ok(None);
    };
    let values = Values::new().name(name).bytes("holder", holder.as_bytes());
    let end = end.text(&values);
    for pause in pauses() {
        sleep(pause).await;
        if changed(&pool.ask("break", Use::Step, &end).await?).is_some() {
            return Ok(row.state());
        }
        // The row is locked, unless the hold has ended by itself.
        let now = read(pool, "break", &look).await?;
        if !now.iter().any(|now| now.holder == row.holder) {
            return Ok(row.state());
        }
    }
    Err(D::ERRORS.skipped("break"))
}

/// Deletes rows that were not used for long. Returns their number.
pub(crate) async fn purge<D: Driver>(
    pool: &Pool<D>,
    delete: &Template,
    unused_for: Duration,
) -> Result<u64, BackendError> {
    let values = Values::new().number("unused", micros(unused_for));
    let delete = delete.text(&values);
    let replies = pool.ask("purge", Use::Step, &delete).await?;
    Ok(replies.iter().map(|reply| reply.changed).sum())
}

type Renewed = Result<Renewal, BackendError>;

/// Renews leases, at most `batch` with one message. Returns one result for each ticket, in order.
pub(crate) async fn renew<D: Driver>(
    pool: &Pool<D>,
    template: &Template,
    tickets: &[Ticket],
    batch: usize,
    by: Use,
) -> Vec<Renewed> {
    let mut results = vec![Ok(Renewal::NotHeld); tickets.len()];
    let mut order: Vec<usize> = (0..tickets.len()).collect();
    // A message sets one length of lease.
    order.sort_by_key(|index| tickets[*index].ttl);
    for same in order.chunk_by(|one, next| tickets[*one].ttl == tickets[*next].ttl) {
        for batch in same.chunks(batch) {
            let of: Vec<&Ticket> = batch.iter().map(|index| &tickets[*index]).collect();
            let text = template.text(&Values::of_all(&of, D::SYNTAX));
            let renewed = renewed(pool, by, &text).await;
            for (index, ticket) in batch.iter().zip(of) {
                results[*index] = match &renewed {
                    Ok(renewed) => match renewed.get(&ticket.holder.to_string()) {
                        Some(true) => Ok(Renewal::renewed(ticket.ttl)),
                        Some(false) => Err(D::ERRORS.skipped("renew")),
                        None => Ok(Renewal::NotHeld),
                    },
                    Err(error) => Err(error.clone()),
                };
            }
        }
    }
    results
}

/// The holders whose leases have not ended, and whether each was renewed: a locked row is skipped.
async fn renewed<D: Driver>(
    pool: &Pool<D>,
    by: Use,
    text: &str,
) -> Result<HashMap<String, bool>, BackendError> {
    let replies = pool.ask("renew", by, text).await?;
    let renewed = rows(&replies).map(|row| Some((D::text(row, 0)?, D::truth(row, 1))));
    let renewed: Option<_> = renewed.collect();
    renewed.ok_or_else(|| D::ERRORS.unreadable("renew"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_byte_for_byte() {
        for name in ["a", "a ", "A", "ä", "a\u{308}", "a%b_c", "\\x61"] {
            let found = name_of(name.as_bytes()).unwrap();
            assert_eq!(found.as_str(), name);
        }
        assert_eq!(name_of(b""), None);
        assert_eq!(name_of(b"\xff"), None);
        assert_eq!(name_of(b"a\0b"), None);
    }
}
