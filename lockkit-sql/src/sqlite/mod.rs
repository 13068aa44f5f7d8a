//! SQLite: a file of this machine, whose single writer makes every statement a step of its own.

mod config;
mod error;
mod guard;
#[cfg(feature = "mutants")]
mod mutant;
mod open;
mod renew;
mod steps;

use std::sync::Arc;

use self::renew::Batch;
use crate::backend::SqlStore;
use crate::schema::definition;
use crate::statement::{Spelling, Statement, Values};
use crate::table::Table;

pub use steps::Sqlite;

/// Keeps locks in a file of SQLite, for the processes of one machine.
pub type SqliteStore = SqlStore<Sqlite>;

const TABLE: &str = include_str!("../sql/sqlite/table.sql");

const SPELLING: Spelling = Spelling {
    quote: '"',
    bytes: ("x'", "'"),
    clock: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
};

/// The statements that make the table.
pub(crate) fn ddl(table: &Table) -> String {
    definition(TABLE, table, SPELLING.quote)
}

/// The statements, ready to be prepared. SQLite has no sessions that a pooler could mix up.
#[derive(Debug)]
struct Statements {
    acquire: Arc<str>,
    acquire_again: Arc<str>,
    look_again: Arc<str>,
    renew: Arc<str>,
    renew_many: [Batch; 3],
    release: Arc<str>,
    release_late: Arc<str>,
    look: Arc<str>,
    break_lock: Arc<str>,
    purge: Arc<str>,
    guard: Arc<str>,
    txlock: Arc<str>,
    columns: Arc<str>,
}

impl Statements {
    fn new(table: &Table, change: impl Fn(&str) -> String) -> Self {
        let statement = |file: &str| Statement::new(&change(file), table, SPELLING);
        let read = |file: &str| Arc::from(statement(file).with(&Values::new(), SPELLING));
        Self {
            acquire: read(include_str!("../sql/sqlite/acquire.sql")),
            acquire_again: read(include_str!("../sql/sqlite/acquire_again.sql")),
            look_again: read(include_str!("../sql/sqlite/look_again.sql")),
            renew: read(include_str!("../sql/sqlite/renew.sql")),
            renew_many: Batch::all(&statement(include_str!("../sql/sqlite/renew_many.sql"))),
            release: read(include_str!("../sql/sqlite/release.sql")),
            release_late: read(include_str!("../sql/sqlite/release_late.sql")),
            look: read(include_str!("../sql/sqlite/look.sql")),
            break_lock: read(include_str!("../sql/sqlite/break.sql")),
            purge: read(include_str!("../sql/sqlite/purge.sql")),
            guard: read(include_str!("../sql/sqlite/guard.sql")),
            txlock: read(include_str!("../sql/sqlite/txlock.sql")),
            columns: read(include_str!("../sql/sqlite/columns.sql")),
        }
    }
}
