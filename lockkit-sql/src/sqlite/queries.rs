//! The queries of SQLite.

use lockkit_core::Capabilities;

use crate::driver::Driver as _;
use crate::queries::{Common, UPSERT, VOID, Words};
use crate::table::Table;
use crate::template::Template;

/// There is one writer at a time.
const WORDS: &Words<'static> = &[
    ("acquire", include_str!("../sql/sqlite/acquire.sql")),
    ("release", include_str!("../sql/sqlite/release.sql")),
    // No row is locked: it returns none.
    ("is_mine", include_str!("../sql/sqlite/release_late.sql")),
    ("renew", include_str!("../sql/sqlite/renew.sql")),
    ("purge", include_str!("../sql/sqlite/purge.sql")),
    ("break_lock", include_str!("../sql/sqlite/break.sql")),
    ("guard", include_str!("../sql/sqlite/guard.sql")),
    ("release_in", include_str!("../sql/sqlite/release_in.sql")),
    ("txlock", include_str!("../sql/sqlite/txlock.sql")),
    ("columns", include_str!("../sql/sqlite/columns.sql")),
    ("start", "BEGIN IMMEDIATE;"),
    ("commit", "COMMIT;"),
    ("make_row", include_str!("../sql/sqlite/make_row.sql")),
    (
        "mine",
        "(SELECT l.name FROM {table} AS l WHERE l.name = {name} AND ({which}))",
    ),
    ("void", VOID),
    ("greatest", "max"),
    ("upsert", UPSERT),
    (
        "renew_shared",
        include_str!("../sql/sqlite/renew_shares.sql"),
    ),
    ("purge_shared", include_str!("../sql/purge_shares.sql")),
    ("announce", include_str!("../sql/announce.sql")),
    ("session_ended", "NULL"),
    ("notify", "NULL"),
];

/// `rules`: what the store can do.
pub(super) fn new(table: &Table, rules: Capabilities) -> Common {
    let words = &[WORDS, &[("schema", table.schema().unwrap_or("main"))]].concat();
    Common::new(words, rules, |query| {
        Template::read(query, table, sqlx::Sqlite::SYNTAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_has_a_value() {
        // Reading a query checks it.
        new(&Table::default(), Capabilities::new());
    }
}
