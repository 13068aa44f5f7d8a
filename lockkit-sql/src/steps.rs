//! Steps that are alike on several databases.

use std::collections::HashMap;
use std::iter::once;
use std::time::Duration;

use lockkit_core::contract::{LockState, Renewal, Ticket};
use lockkit_core::{BackendError, FencingToken, HolderId, LockName};
use tokio::time::sleep;

use crate::config::{Options, Schema};
use crate::dialect::Steps;
use crate::driver::{Columns, Driver, changed, rows};
use crate::error::Problem;
use crate::pool::Pool;
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
        pool.ask("open", create).await?;
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
    let replies = pool.ask("open", &columns).await?;
    let columns = rows(&replies).map(|row| Some((row.text(0)?, row.text(1)?)));
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
    fn read(row: &impl Columns) -> Option<Self> {
        Some(Self {
            name: row.bytes(0)?,
            holder: row.text(1),
            token: row.number(2)?,
            left: row.number(3)?,
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

/// Lists locks that are held.
pub(crate) async fn list<S: Steps>(
    store: &S,
    which: Which<'_>,
) -> Result<Vec<LockState>, BackendError> {
    let list = store
        .common()
        .list
        .text(&Values::condition(which, S::Driver::SYNTAX));
    states(store.pool(), "inspect", &list).await
}

/// Sends a statement that returns rows of the table.
pub(crate) async fn states<D: Driver>(
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
    let replies = pool.ask(operation, text).await?;
    let rows: Option<_> = rows(&replies).map(Row::read).collect();
    rows.ok_or_else(|| D::ERRORS.unreadable(operation))
}

/// Reads the hold of a lock and ends it with `end`, which skips a locked row.
pub(crate) async fn break_lock<S: Steps>(
    store: &S,
    end: &Template,
    name: &LockName,
) -> Result<Option<LockState>, BackendError> {
    let pool = store.pool();
    let look = Values::condition(Which::Name(name), S::Driver::SYNTAX);
    let look = store.common().list.text(&look);
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
        if changed(&pool.ask("break", &end).await?).is_some() {
            return Ok(row.state());
        }
        // The row is locked, unless the hold has ended by itself.
        let now = read(pool, "break", &look).await?;
        if !now.iter().any(|now| now.holder == row.holder) {
            return Ok(row.state());
        }
    }
    Err(S::Driver::ERRORS.skipped("break"))
}

/// Deletes rows that were not used for long. Returns their number.
pub(crate) async fn purge<S: Steps>(store: &S, unused_for: Duration) -> Result<u64, BackendError> {
    let values = Values::new().number("unused", micros(unused_for));
    let delete = store.common().purge.text(&values);
    let replies = store.pool().ask("purge", &delete).await?;
    Ok(replies.iter().map(|reply| reply.changed).sum())
}

/// Renews leases. Returns one result for each ticket, in order.
pub(crate) async fn renew<S: Steps>(
    store: &S,
    tickets: &[Ticket],
) -> Vec<Result<Renewal, BackendError>> {
    let mut results = vec![Ok(Renewal::NotHeld); tickets.len()];
    let mut order: Vec<usize> = (0..tickets.len()).collect();
    // A message sets one length of lease.
    order.sort_by_key(|index| tickets[*index].ttl);
    for same in order.chunk_by(|one, next| tickets[*one].ttl == tickets[*next].ttl) {
        for batch in same.chunks(S::BATCH) {
            let of: Vec<&Ticket> = batch.iter().map(|index| &tickets[*index]).collect();
            let renewed = renewed(store, &of).await;
            for (index, ticket) in batch.iter().zip(of) {
                results[*index] = match &renewed {
                    Ok(renewed) => match renewed.get(&ticket.holder.to_string()) {
                        Some(true) => Ok(Renewal::renewed(ticket.ttl)),
                        Some(false) => Err(S::Driver::ERRORS.skipped("renew")),
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
async fn renewed<S: Steps>(
    store: &S,
    tickets: &[&Ticket],
) -> Result<HashMap<String, bool>, BackendError> {
    let values = Values::of_all(tickets, S::Driver::SYNTAX);
    let renew = store.common().renew.text(&values);
    let replies = store.pool().renew(&renew).await?;
    let renewed = rows(&replies).map(|row| Some((row.text(0)?, row.truth(1))));
    let renewed: Option<_> = renewed.collect();
    renewed.ok_or_else(|| S::Driver::ERRORS.unreadable("renew"))
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
