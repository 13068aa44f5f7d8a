//! The queries of PostgreSQL.

use lockkit_core::Capabilities;

use crate::driver::Driver as _;
use crate::queries::{Common, IS_MINE, UPSERT, VOID, Words, write};
use crate::table::Table;
use crate::template::Template;

/// The rest of a lease, in microseconds, once its session has ended: longer than the client needs to learn
/// of the end.
const GRACE: &str = "250000";

/// 31 bits of the start of the server, which differ after a restart or a failover.
const SERVER: &str =
    "((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint & 2147483647)";

const UNLESS_SHARED: &str = "AND NOT EXISTS (
    SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder} AND h.token > 0)";

/// A message is one transaction.
const WORDS: &Words<'static> = &[
    ("acquire", include_str!("../sql/postgres/acquire.sql")),
    ("release", include_str!("../sql/postgres/release.sql")),
    ("is_mine", IS_MINE),
    ("renew", include_str!("../sql/postgres/renew.sql")),
    ("purge", include_str!("../sql/postgres/purge.sql")),
    ("break_lock", include_str!("../sql/postgres/break.sql")),
    ("guard", include_str!("../sql/postgres/guard.sql")),
    (
        "release_in",
        concat!(include_str!("../sql/postgres/release_in.sql"), "{release}"),
    ),
    // Its plan takes a millisecond on two cores, and its execution a tenth of that.
    ("release_in_at_once", "{release}"),
    ("token_too", ""),
    ("txlock", include_str!("../sql/postgres/txlock.sql")),
    ("columns", include_str!("../sql/postgres/columns.sql")),
    ("make_row", include_str!("../sql/postgres/make_row.sql")),
    ("lock", include_str!("../sql/postgres/lock.sql")),
    ("mark", "FOR NO KEY UPDATE"),
    (
        "mine",
        "CASE WHEN current_setting('lockkit.locked', true) = '1' THEN {name} END",
    ),
    ("void", VOID),
    ("greatest", "greatest"),
    ("upsert", UPSERT),
    (
        "renew_shared",
        include_str!("../sql/postgres/renew_shares.sql"),
    ),
    // Half of the time that a renewal has, and far less than the client's limit of a request.
    (
        "renew_in_turn",
        "SELECT 1 WHERE set_config('lock_timeout', greatest(1, least({ttl} / 12000, 500))::text, true) IS NULL;\n{renew_shared}",
    ),
    ("purge_shared", include_str!("../sql/purge_shares.sql")),
    ("asked", include_str!("../sql/postgres/asked.sql")),
    ("unless", "AND NOT EXISTS (SELECT 1 FROM taken)"),
    ("announce", "{ask}"),
    // `ask` finds out.
    ("session_ended", "NULL"),
    ("placed", include_str!("../sql/postgres/placed.sql")),
    (
        "notify",
        "(SELECT CASE WHEN l.waiting_until > {now}
                  THEN pg_notify({channel}, encode({name}, 'hex'))::text END
              FROM {table} AS l WHERE l.name = {name}),
        set_config('synchronous_commit', 'off', true)",
    ),
    ("hand_on", include_str!("../sql/postgres/hand_on.sql")),
    ("front", include_str!("../sql/postgres/front.sql")),
    // Unless it grants, a release does not wait for the disk.
    (
        "unsynced",
        "CASE WHEN g.granted = 0 THEN set_config('synchronous_commit', 'off', true) END",
    ),
    ("ended", include_str!("../sql/postgres/ended.sql")),
    ("server", SERVER),
    ("grace", GRACE),
];

#[derive(Debug)]
pub(super) struct Queries {
    /// Releases of every lock of the table are notified on it.
    pub(super) channel: String,
    pub(super) schemas: Template,
    pub(super) session: Template,
    pub(super) is_free: Template,
    pub(super) notify: Template,
}

impl Queries {
    /// `rules`: what the store can do.
    pub(super) fn new(table: &Table, rules: Capabilities) -> (Common, Self) {
        // Tables of one name in two schemas share it: a client that is notified of a lock of the other tries once more.
        let channel = format!("lockkit_{}", table.name());
        let schema = table.schema().map(|schema| format!("'{schema}'"));
        let ask = include_str!("../sql/postgres/asked.sql").replace("{unless}", UNLESS_SHARED);
        let words = [
            ("ask", &*[&ask, ";"].concat()),
            ("channel", &quoted(&channel)),
            (
                "relation",
                &quoted(&table.quoted(sqlx::Postgres::SYNTAX.quote)),
            ),
            ("schema", schema.as_deref().unwrap_or("null::text")),
        ];
        let words = &[WORDS, &words].concat();
        let template = |query: &str| Template::read(query, table, sqlx::Postgres::SYNTAX);
        let read = |query: &str| template(&write(query, words));
        let queries = Self {
            schemas: read(include_str!("../sql/postgres/schemas.sql")),
            session: read(include_str!("../sql/postgres/session.sql")),
            is_free: read(include_str!("../sql/postgres/is_free.sql")),
            notify: read("SELECT pg_catalog.pg_notify({channel}, 'probe {payload}');"),
            channel,
        };
        (Common::new(words, rules, template), queries)
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
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
