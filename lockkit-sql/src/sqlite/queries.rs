//! The queries of SQLite.

use std::sync::Arc;

use lockkit_core::Capabilities;

use super::driver::SYNTAX;
use crate::queries::{Common, Shares, Types, Words, with_places};
use crate::table::Table;
use crate::template::{Template, definition};

/// There is one writer at a time.
const WORDS: Words = Words {
    start: "BEGIN IMMEDIATE;",
    commit: "COMMIT;",
    committed: "",
    make_row: include_str!("../sql/sqlite/make_row.sql"),
    lock: "",
    mark: "",
    mine: "(SELECT l.name FROM {table} AS l WHERE l.name = {name} AND ({which}))",
    void: "NOT EXISTS (SELECT 1 FROM {table} AS l WHERE l.name = {name} AND l.holder = '~')",
    greatest: "max",
    upsert: "ON CONFLICT (name, holder) DO UPDATE
        SET token = excluded.token, expires_at = excluded.expires_at, room = excluded.room",
    renew: include_str!("../sql/sqlite/renew_shares.sql"),
    renew_in_turn: None,
    purge: include_str!("../sql/purge_shares.sql"),
    announce: include_str!("../sql/announce.sql"),
    ask: "",
    session_ended: "NULL",
    end_with_session: None,
    placed: "",
    notify: "NULL",
    hand_on: "",
};

pub(super) const TYPES: Types = Types {
    rights: "",
    bytes: "BLOB",
    holder: "TEXT",
    number: "INTEGER",
    key: "",
    options: "",
    parts: &[],
};

#[derive(Debug)]
pub(super) struct Queries {
    pub(super) common: Common,
    pub(super) acquire: Template,
    pub(super) release: Template,
    pub(super) release_late: Template,
    pub(super) txlock: Template,
    pub(super) columns: Template,
}

impl Queries {
    /// `rules`: what the store can do.
    pub(super) fn new(table: &Table, rules: Capabilities) -> Self {
        let schema = table.schema().unwrap_or("main");
        let read = |file: &str| {
            let file = with_places(&file.replace("{schema}", schema));
            Template::read(&file, table, &SYNTAX)
        };
        Self {
            common: Common {
                renew: read(include_str!("../sql/sqlite/renew.sql")),
                list: read(include_str!("../sql/list.sql")),
                purge: read(include_str!("../sql/sqlite/purge.sql")),
                break_lock: read(include_str!("../sql/sqlite/break.sql")),
                is_mine: read(include_str!("../sql/is_mine.sql")),
                guard: read(include_str!("../sql/sqlite/guard.sql")),
                release_in: read(include_str!("../sql/sqlite/release_in.sql")),
                release_in_at_once: None,
                shares: Shares::new(&WORDS, read),
                rules,
                waiters: Arc::default(),
            },
            acquire: read(include_str!("../sql/sqlite/acquire.sql")),
            release: read(include_str!("../sql/sqlite/release.sql")),
            release_late: read(include_str!("../sql/sqlite/release_late.sql")),
            txlock: read(include_str!("../sql/sqlite/txlock.sql")),
            columns: read(include_str!("../sql/sqlite/columns.sql")),
        }
    }
}

/// The statement that creates the table.
pub(crate) fn ddl(table: &Table) -> String {
    definition(&TYPES.ddl(), table, &SYNTAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_a_value() {
        // Reading a query checks it.
        Queries::new(&Table::default(), Capabilities::new());
    }
}
