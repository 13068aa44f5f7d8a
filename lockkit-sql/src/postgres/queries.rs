//! The queries of PostgreSQL.

use lockkit_core::Capabilities;

use super::driver::SYNTAX;
use crate::queries::{Common, IS_MINE, UPSERT, VOID, Words, replace, with_places};
use crate::table::Table;
use crate::template::Template;

/// The rest of a lease, in microseconds, once its session has ended: longer than the client needs to learn
/// of the end.
const GRACE: i64 = 250_000;

/// 31 bits of the start of the server, which differ after a restart or a failover.
const SERVER: &str =
    "((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint & 2147483647)";

const ENDED: &str = include_str!("../sql/postgres/ended.sql");
const ASKED: &str = include_str!("../sql/postgres/asked.sql");
const FRONT: &str = include_str!("../sql/postgres/front.sql");
const UNLESS: &str = "AND NOT EXISTS (SELECT 1 FROM taken)";
const UNLESS_SHARED: &str = "AND NOT EXISTS (
    SELECT 1 FROM {holds} AS h WHERE h.name = {name} AND h.holder = {holder} AND h.token > 0)";

/// Unless it grants, a release does not wait for the disk.
const UNSYNCED: &str =
    "CASE WHEN g.granted = 0 THEN set_config('synchronous_commit', 'off', true) END";

/// A message is one transaction.
fn words() -> Words {
    Words {
        acquire: include_str!("../sql/postgres/acquire.sql"),
        release: include_str!("../sql/postgres/release.sql"),
        is_mine: IS_MINE,
        renew: include_str!("../sql/postgres/renew.sql"),
        purge: include_str!("../sql/postgres/purge.sql"),
        break_lock: include_str!("../sql/postgres/break.sql"),
        guard: include_str!("../sql/postgres/guard.sql"),
        release_in: [
            include_str!("../sql/postgres/release_in.sql"),
            &release_in(),
        ]
        .join("\n"),
        // Its plan takes a millisecond on two cores, and its execution a tenth of that.
        release_in_at_once: Some(release_in()),
        txlock: include_str!("../sql/postgres/txlock.sql"),
        columns: include_str!("../sql/postgres/columns.sql"),
        make_row: include_str!("../sql/postgres/make_row.sql"),
        lock: include_str!("../sql/postgres/lock.sql"),
        mark: "FOR NO KEY UPDATE",
        mine: "CASE WHEN current_setting('lockkit.locked', true) = '1' THEN {name} END",
        void: VOID,
        greatest: "greatest",
        upsert: UPSERT,
        renew_shared: include_str!("../sql/postgres/renew_shares.sql"),
        // Half of the time that a renewal has, and far less than the client's limit of a request.
        renew_in_turn: Some(
            "SELECT 1 WHERE set_config('lock_timeout', greatest(1, least({ttl} / 12000, 500))::text, true) IS NULL;\n",
        ),
        purge_shared: include_str!("../sql/purge_shares.sql"),
        announce: "{ask}",
        ask: "{ask}",
        // `ask` finds out.
        session_ended: "NULL",
        placed: include_str!("../sql/postgres/placed.sql"),
        notify: "(SELECT CASE WHEN l.waiting_until > {now}
                  THEN pg_notify({channel}, encode({name}, 'hex'))::text END
              FROM {table} AS l WHERE l.name = {name}),
        set_config('synchronous_commit', 'off', true)",
        hand_on: include_str!("../sql/postgres/hand_on.sql"),
        ..Words::default()
    }
}

#[derive(Debug)]
pub(super) struct Queries {
    pub(super) common: Common,
    /// Releases of every lock of the table are notified on it.
    pub(super) channel: String,
    pub(super) schemas: Template,
    pub(super) session: Template,
    pub(super) is_free: Template,
    pub(super) notify: Template,
}

impl Queries {
    /// `rules`: what the store can do.
    pub(super) fn new(table: &Table, rules: Capabilities) -> Self {
        // Tables of one name in two schemas share it: a client that is notified of a lock of the other tries once more.
        let channel = format!("lockkit_{}", table.name());
        let schema = table.schema().map(|schema| format!("'{schema}'"));
        let constants = [
            ("{asked}", ASKED.replace("{unless}", UNLESS)),
            (
                "{ask}",
                format!("{};", ASKED.replace("{unless}", UNLESS_SHARED)),
            ),
            ("{front_on_disk}", FRONT.replace("{unsynced}", "NULL")),
            ("{front}", FRONT.to_owned()),
            ("{unsynced}", UNSYNCED.to_owned()),
            ("{token_too}", String::new()),
            ("{ended}", ENDED.to_owned()),
            ("{server}", SERVER.to_owned()),
            ("{grace}", GRACE.to_string()),
            ("{channel}", quoted(&channel)),
            ("{relation}", quoted(&table.quoted(SYNTAX.quote))),
            ("{schema}", schema.unwrap_or("null::text".to_owned())),
        ];
        let read = |file: &str| {
            let file = with_places(&replace(file, &constants));
            Template::read(&file, table, &SYNTAX)
        };
        Self {
            common: Common::new(&words(), rules, read),
            schemas: read(include_str!("../sql/postgres/schemas.sql")),
            session: read(include_str!("../sql/postgres/session.sql")),
            is_free: read(include_str!("../sql/postgres/is_free.sql")),
            notify: read("SELECT pg_catalog.pg_notify({channel}, 'probe {payload}');"),
            channel,
        }
    }
}

/// A release in a transaction of the application, which commits as the application says.
fn release_in() -> String {
    include_str!("../sql/postgres/release.sql")
        .replace("{front}", "{front_on_disk}")
        .replace("{token_too}", "AND m.token = {token}")
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
