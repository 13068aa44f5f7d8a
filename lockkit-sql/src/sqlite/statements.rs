//! The SQL statements of SQLite, ready to be prepared.

use std::sync::Arc;

use crate::schema::definition;
use crate::statement::{Spelling, Statement, Values};
use crate::table::Table;

const TABLE: &str = include_str!("../sql/sqlite/table.sql");

const SPELLING: Spelling = Spelling {
    quote: '"',
    bytes: ("x'", "'"),
    clock: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
};

/// The statement that creates the table.
pub(crate) fn ddl(table: &Table) -> String {
    definition(TABLE, table, SPELLING.quote)
}

#[derive(Debug)]
pub(super) struct Statements {
    pub(super) acquire: Arc<str>,
    pub(super) look_again: Arc<str>,
    pub(super) renew: Arc<str>,
    pub(super) release: Arc<str>,
    pub(super) release_late: Arc<str>,
    pub(super) look: Arc<str>,
    pub(super) break_lock: Arc<str>,
    pub(super) purge: Arc<str>,
    pub(super) guard: Arc<str>,
    pub(super) txlock: Arc<str>,
    pub(super) columns: Arc<str>,
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let read = |file: &str| {
            let statement = Statement::new(file, table, SPELLING);
            Arc::from(statement.with(&Values::new(), SPELLING))
        };
        Self {
            acquire: read(include_str!("../sql/sqlite/acquire.sql")),
            look_again: read(include_str!("../sql/sqlite/look_again.sql")),
            renew: read(include_str!("../sql/sqlite/renew.sql")),
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
