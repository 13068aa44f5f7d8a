//! Steps that are alike on several databases.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockkit_core::contract::{Holder, LockState, Mode, Release, Renewal, Ticket};
use lockkit_core::{BackendError, HolderId, LockName, Outcome};
use sqlx::Database;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::config::{Options, Schema};
use crate::dialect::{Steps, Store};
use crate::driver::{self, Columns, Driver, Reply, changed, rows, send};
use crate::error::{Errors, Problem, Result, after};
use crate::pool::Pool;
use crate::queries::Common;
use crate::table::Which;
use crate::template::Template;
use crate::values::{Values, micros, token};

/// The holder of a row of a name whose holds are in the second table.
const SHARED: &str = "~";

/// Creates the table if it is missing and may be created, and compares its columns.
pub(crate) async fn check_table<D: Driver>(
    pool: &Pool<D>,
    common: &Common,
    options: &Options,
) -> Result<()> {
    let (table, columns) = (&options.table, &common.columns);
    let mut may_create = options.schema == Schema::Create;
    let mut pauses = pauses();
    loop {
        let found = columns_of(pool, columns).await?;
        let Some(text) = D::TYPES.misfit(table, &found) else {
            break;
        };
        if found.is_empty() && may_create {
            let create = [D::TYPES.before, &driver::ddl::<D>(table)].concat();
            pool.ask_to_open(&create).await?;
            may_create = false;
        } else if let Some(pause) = pauses.next() {
            // MySQL reads the parts one after the other, while another client may be creating the table.
            sleep(pause).await;
        } else {
            return Err(D::ERRORS.rejected("open", Problem::Schema, text));
        }
    }
    // The second table is there if the first is: it is created before that.
    pool.ask_to_open(&common.probe.text(&Values::new())).await?;
    Ok(())
}

/// The columns of the table and their types; empty if there is no table.
async fn columns_of<D: Driver>(
    pool: &Pool<D>,
    columns: &Template,
) -> Result<Vec<(String, String)>> {
    let columns = columns.text(&Values::new());
    let replies = pool.ask_to_open(&columns).await?;
    let columns = rows(&replies).map(|row| Some((row.text(0)?, row.text(1)?)));
    let columns: Option<_> = columns.collect();
    columns.ok_or_else(|| D::ERRORS.unreadable("open"))
}

/// A hold: the row of its name, and its own if it has one in the second table.
#[derive(Debug)]
struct Row {
    name: Vec<u8>,
    /// Of the row of the name; `None` if tickets only wait.
    holder: Option<String>,
    /// The hold, as operators see it.
    of: Holder,
    /// How many wait for the name.
    waiters: Option<u32>,
}

/// In `list.sql`, from a column of the row of a name to the same column of a hold's own row.
const FROM_NAME_TO_OWN: usize = 5;

impl Row {
    fn read(row: &impl Columns) -> Option<Self> {
        let holder = row.text(1);
        // A hold that shares has a row of its own, whose columns follow.
        let shared = row.text(6).filter(|_| holder.as_deref() == Some(SHARED));
        let (shift, room) = match shared {
            Some(_) => (FROM_NAME_TO_OWN, row.number(9)),
            None => (0, None),
        };
        let id = shared.or_else(|| holder.clone()).unwrap_or_default();
        // Parentheses show that another program has set the holder.
        let (id, mode) = match id.parse::<HolderId>() {
            Ok(_) => (id, mode(room)),
            Err(_) => (format!("({id})"), None),
        };
        let micros = |micros| u64::try_from(micros).ok().map(Duration::from_micros);
        let text = |column| Some(String::from_utf8_lossy(&row.bytes(column)?).into_owned());
        let number = row.number(2 + shift)?;
        Some(Self {
            name: row.bytes(0)?,
            holder,
            of: Holder {
                id,
                label: text(5 + shift).filter(|label| !label.is_empty()),
                mode,
                token: token(number),
                // The token is the time of the grant, or after it where grants follow each other at once.
                held_for: micros((row.number(4)? - number).max(0)),
                // Not positive when the lease has ended.
                remaining: micros(row.number(3 + shift)?),
                note: text(11),
            },
            waiters: u32::try_from(row.number(12)?).ok(),
        })
    }
}

/// The mode of a hold. `room`: how many may hold together, if it shares.
fn mode(room: Option<i64>) -> Option<Mode> {
    let Some(room) = room else {
        return Some(Mode::Exclusive);
    };
    let of = NonZeroU32::new(u32::try_from(room).ok()?)?;
    Some(match of {
        NonZeroU32::MAX => Mode::Read,
        of => Mode::Permit { of },
    })
}

/// The states of locks as operators see them, without names of other programs that are not valid.
fn states(rows: &[Row]) -> Vec<LockState> {
    let same = |one: &Row, next: &Row| one.name == next.name;
    let states = rows.chunk_by(same).filter_map(|rows| {
        let first = rows.first()?;
        let state = LockState {
            waiters: first.waiters,
            ..LockState::new(name_of(&first.name)?)
        };
        let holders = rows.iter().filter(|row| row.holder.is_some());
        let holders = holders.map(|row| row.of.clone());
        Some(holders.fold(state, LockState::with_holder))
    });
    states.collect()
}

/// The name that a row is for.
pub(crate) fn name_of(bytes: &[u8]) -> Option<LockName> {
    LockName::new(std::str::from_utf8(bytes).ok()?).ok()
}

/// The pauses before each further look at a row that is free and locked: six that double from a millisecond.
/// Longer than any of our statements, or a table scan, keeps a row locked.
pub(crate) fn pauses() -> impl Iterator<Item = Duration> + Send {
    (0..6).map(|pause| Duration::from_millis(1 << pause))
}

/// Starts a request as a task of a runtime.
///
/// # Cancel safety
/// Dropped, it cancels the request, which closes the connection of a request without a reply.
pub(crate) fn run_on<T: Send + 'static>(
    runtime: &Handle,
    errors: Errors,
    operation: &'static str,
    request: impl Future<Output = Result<T>> + Send + 'static,
) -> impl Future<Output = Result<T>> + Send {
    let mut task = JoinSet::new();
    task.spawn_on(request, runtime);
    async move {
        match task.join_next().await {
            Some(Ok(result)) => result,
            // It panicked, or the runtime has stopped.
            _ => {
                let text = "the request ended without a reply";
                let (problem, outcome) = (Problem::Refused, Outcome::Indeterminate);
                Err(errors.fault(operation, problem, outcome, text))
            }
        }
    }
}

/// Inserts the row of a name, for a transaction of the application that locks it; returns whether the lock is held. On a
/// connection of the store: others would wait for the end of a transaction that has inserted the row. And in the runtime
/// of the store: that of the application may end before the connection.
async fn make_row<S: Steps>(store: &Arc<Store<S>>, name: &LockName) -> Result<bool> {
    let text = store.common.make_row.text(&Values::new().name(name));
    let this = Arc::clone(store);
    let make = async move { this.pool.ask("lock", &text).await };
    let replies = run_on(&store.pool.runtime(), S::Driver::ERRORS, "lock", make).await?;
    Ok(rows(&replies).next().is_some())
}

/// Lists locks that are held.
pub(crate) async fn list<S: Steps>(store: &Store<S>, which: Which<'_>) -> Result<Vec<LockState>> {
    let list = Values::condition(which, S::Driver::SYNTAX);
    let list = store.common.list.text(&list);
    Ok(states(&read(&store.pool, "inspect", &list).await?))
}

async fn read<D: Driver>(pool: &Pool<D>, operation: &'static str, text: &str) -> Result<Vec<Row>> {
    let replies = pool.ask(operation, text).await?;
    let rows: Option<_> = rows(&replies).map(Row::read).collect();
    rows.ok_or_else(|| D::ERRORS.unreadable(operation))
}

/// Reads the holds of a lock and ends them.
pub(crate) async fn break_lock<S: Steps>(
    store: &Store<S>,
    name: &LockName,
) -> Result<Option<LockState>> {
    let pool = &store.pool;
    let look = Values::condition(Which::Name(name), S::Driver::SYNTAX);
    let look = store.common.list.text(&look);
    let rows = read(pool, "break", &look).await?;
    let Some(holder) = rows.first().and_then(|row| row.holder.as_ref()) else {
        return Ok(None);
    };
    let values = Values::new().name(name).bytes("holder", holder.as_bytes());
    let end = store.common.break_lock.text(&values);
    let mut pauses = pauses();
    loop {
        if changed(&pool.ask("break", &end).await?).is_some() {
            return Ok(states(&rows).pop());
        }
        // The row is locked, unless the hold has ended by itself.
        let now = read(pool, "break", &look).await?;
        if !now.iter().any(|now| now.holder.as_ref() == Some(holder)) {
            return Ok(states(&rows).pop());
        }
        match pauses.next() {
            Some(pause) => sleep(pause).await,
            None => return Err(S::Driver::ERRORS.skipped("break")),
        }
    }
}

/// Ends an exclusive hold.
pub(crate) async fn release<S: Steps>(store: &Store<S>, ticket: &Ticket) -> Result<Release> {
    let (common, values) = (&store.common, Values::of(ticket));
    let is_mine = common.is_mine.text(&values);
    for _ in 0..3 {
        let replies = store.pool.step("release", &common.release, &values);
        match S::in_time(&replies.await?) {
            Some(true) => return Ok(Release::Released),
            Some(false) => return Ok(Release::NotHeld),
            None => {}
        }
        let replies = store.pool.ask("release", &is_mine).await?;
        if rows(&replies).next().is_none() {
            return Ok(Release::NotHeld);
        }
    }
    Err(S::Driver::ERRORS.skipped("release"))
}

/// In a transaction of the application: locks the row of a free lock until the transaction ends. Returns `false` if the
/// lock is held.
pub(crate) async fn lock_row<S: Steps>(
    store: &Arc<Store<S>>,
    name: &LockName,
    transaction: &mut <S::Driver as Database>::Connection,
) -> Result<bool> {
    let lock = store.common.txlock.text(&Values::new().name(name));
    for turn in 0..2 {
        // MySQL would lock the row of a lock that is held, too, until the transaction ends.
        if (turn > 0 || S::ROW_FIRST) && make_row(store, name).await? {
            return Ok(false);
        }
        let replies = send::<S::Driver>(transaction, "lock", driver::text(&lock)).await?;
        if let Some(taken) = S::taken(&replies) {
            return Ok(taken);
        }
    }
    Ok(false)
}

/// Deletes rows that were not used for long. Returns their number.
pub(crate) async fn purge<S: Steps>(store: &Store<S>, unused_for: Duration) -> Result<u64> {
    let values = Values::new().number("unused", micros(unused_for));
    let delete = store.common.purge.text(&values);
    let replies = store.pool.ask("purge", &delete).await?;
    let delete = &store.common.purge_shared;
    let deleted = store.pool.transact("purge", delete, &values).await;
    deleted.map_err(after(true))?;
    Ok(replies.iter().map(|reply| reply.changed).sum())
}

/// Renews leases. Returns one result for each ticket, in order.
pub(crate) async fn renew<S: Steps>(store: &Store<S>, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
    let mut results = vec![Ok(Renewal::NotHeld); tickets.len()];
    let mut order: Vec<usize> = (0..tickets.len()).collect();
    // A message sets one length of lease, in one of the tables. First the one that waits for no row.
    let kind = |index: &usize| (!tickets[*index].mode.is_exclusive(), tickets[*index].ttl);
    order.sort_by_key(kind);
    for same in order.chunk_by(|one, next| kind(one) == kind(next)) {
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

/// The holders whose leases have not ended, and whether each was renewed: a locked row is skipped. Holds beside others
/// wait for it: each step of such a hold locks the row of the name for a moment, and many follow each other.
async fn renewed<S: Steps>(store: &Store<S>, tickets: &[&Ticket]) -> Result<HashMap<String, bool>> {
    let values = Values::of_all(tickets, S::Driver::SYNTAX);
    let exclusive = tickets.iter().all(|ticket| ticket.mode.is_exclusive());
    let renew = match exclusive {
        true => &store.common.renew,
        false => &store.common.renew_shared,
    };
    let text = renew.text(&values);
    let mut renewed = read_renewed(&store.pool.renew(&text, false).await?)?;
    if let Some(wait) = &store.common.renew_in_turn
        && !exclusive
    {
        renew_in_turn(store, wait, tickets, &mut renewed).await;
    }
    Ok(renewed)
}

/// Waits for each row that was skipped, by a request of its own: one that stays locked delays no other.
async fn renew_in_turn<S: Steps>(
    store: &Store<S>,
    wait: &Template,
    tickets: &[&Ticket],
    renewed: &mut HashMap<String, bool>,
) {
    let is_skipped = |ticket: &&&Ticket| renewed.get(&ticket.holder.to_string()) == Some(&false);
    let mut skipped: Vec<&Ticket> = tickets.iter().filter(is_skipped).copied().collect();
    skipped.sort_by_key(|ticket| &ticket.name);
    let rows = skipped.chunk_by(|one, next| one.name == next.name);
    let waiting = rows.map(|tickets| async move {
        let text = wait.text(&Values::of_all(tickets, S::Driver::SYNTAX));
        Ok::<_, BackendError>((
            tickets,
            read_renewed(&store.pool.renew(&text, true).await?)?,
        ))
    });
    // What fails counts as skipped, and what a reply leaves out has ended.
    for (tickets, reply) in join_all(waiting).await.into_iter().flatten() {
        for ticket in tickets {
            renewed.remove(&ticket.holder.to_string());
        }
        renewed.extend(reply);
    }
}

fn read_renewed<D: Driver>(replies: &[Reply<D>]) -> Result<HashMap<String, bool>> {
    let renewed = rows(replies).map(|row| Some((row.text(0)?, row.truth(1))));
    let renewed: Option<_> = renewed.collect();
    renewed.ok_or_else(|| D::ERRORS.unreadable("renew"))
}
