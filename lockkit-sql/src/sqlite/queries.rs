//! The queries of SQLite.

use super::driver::SYNTAX;
use crate::dialect::Common;
use crate::table::Table;
use crate::template::{Template, definition};

#[derive(Debug)]
pub(super) struct Queries {
    pub(super) common: Common,
    pub(super) acquire: Template,
    pub(super) release: Template,
    pub(super) release_late: Template,
    pub(super) inspect: Template,
    pub(super) break_lock: Template,
    pub(super) txlock: Template,
    pub(super) columns: Template,
}

impl Queries {
    pub(super) fn new(table: &Table) -> Self {
        let schema = table.schema().unwrap_or("main");
        let read = |file: &str| Template::read(&file.replace("{schema}", schema), table, &SYNTAX);
        Self {
            common: Common {
                renew: read(include_str!("../sql/sqlite/renew.sql")),
                list: read(include_str!("../sql/sqlite/list.sql")),
                purge: read(include_str!("../sql/sqlite/purge.sql")),
                guard: read(include_str!("../sql/sqlite/guard.sql")),
            },
            acquire: read(include_str!("../sql/sqlite/acquire.sql")),
            release: read(include_str!("../sql/sqlite/release.sql")),
            release_late: read(include_str!("../sql/sqlite/release_late.sql")),
            inspect: read(include_str!("../sql/sqlite/inspect.sql")),
            break_lock: read(include_str!("../sql/sqlite/break.sql")),
            txlock: read(include_str!("../sql/sqlite/txlock.sql")),
            columns: read(include_str!("../sql/sqlite/columns.sql")),
        }
    }
}

/// The statement that creates the table.
pub(crate) fn ddl(table: &Table) -> String {
    definition(include_str!("../sql/sqlite/table.sql"), table, &SYNTAX)
}
