//! PostgreSQL: rows that are locked for microseconds, or by a pin, and notifications.

mod acquire;
mod config;
mod error;
mod guard;
mod kept;
#[cfg(feature = "mutants")]
mod mutant;
mod notify;
mod opening;
mod pin;
mod release;
mod session;
mod statements;
mod steps;

use crate::backend::SqlStore;
use crate::schema::definition;
use crate::statement::Spelling;
use crate::table::Table;

pub use steps::Postgres;

/// Keeps locks in a table of PostgreSQL.
pub type PostgresStore = SqlStore<Postgres>;

const TABLE: &str = include_str!("../sql/postgres/table.sql");

const SPELLING: Spelling = Spelling {
    quote: '"',
    bytes: ("E'\\\\x", "'::bytea"),
    // Not `now()`, which is when the transaction began. As a `double`, which tells microseconds apart
    // for some centuries, and costs the server half of what `extract` does.
    clock: "(date_part('epoch', clock_timestamp()) * 1000000)::bigint",
};

/// The statements that make the table.
pub(crate) fn ddl(table: &Table) -> String {
    definition(TABLE, table, SPELLING.quote)
}
