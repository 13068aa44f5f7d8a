//! The queries of MySQL and MariaDB.

use lockkit_core::Capabilities;

use crate::driver::Driver as _;
use crate::queries::{Common, IS_MINE, Words, write};
use crate::table::Table;
use crate::template::Template;

/// 31 bits that differ between the servers of one database: after a failover the sessions of the old
/// server are unknown, and not ended.
const SERVER: &str = "(CRC32(CONCAT(@@server_id, '@', @@hostname)) & 2147483647)";

/// How long a lease lasts after the end of its session is known, in microseconds: the client learns of it in this time.
const WAIT: &str = "1000000";

/// Whether the session of a row `l` has ended, and its lease lasts for longer than is left then. Not null.
const SESSION_ENDED: &str =
    "(CASE WHEN l.session <> 0 AND l.expires_at > {now} + {wait} AND l.session >> 32 = {server}
      THEN IS_USED_LOCK(CONCAT('lockkit_', l.session)) IS NULL ELSE 0 END)";

/// Whether a ticket may hold without a look at those that wait.
const MAY: &str = "(holder = {holder} AND expires_at > {now}
    OR (holder IS NULL OR expires_at <= {now}) AND waiting_until <= {now})";

const WORDS: &Words<'static> = &[
    ("acquire", include_str!("../sql/mysql/acquire.sql")),
    ("release", include_str!("../sql/mysql/release.sql")),
    ("is_mine", IS_MINE),
    ("renew", include_str!("../sql/mysql/renew.sql")),
    ("purge", include_str!("../sql/mysql/purge.sql")),
    ("break_lock", include_str!("../sql/mysql/break.sql")),
    ("guard", include_str!("../sql/mysql/guard.sql")),
    ("release_in", include_str!("../sql/mysql/release_in.sql")),
    ("txlock", include_str!("../sql/mysql/txlock.sql")),
    ("columns", include_str!("../sql/mysql/columns.sql")),
    // A transaction is a statement if none is begun.
    ("level", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"),
    ("start", "{level} START TRANSACTION;"),
    ("commit", "COMMIT;"),
    ("committed", "COMMIT;"),
    ("make_row", include_str!("../sql/mysql/make_row.sql")),
    ("lock", include_str!("../sql/mysql/lock.sql")),
    ("mine", "@lockkit_name"),
    ("void", "@lockkit_void"),
    ("greatest", "GREATEST"),
    (
        "upsert",
        "ON DUPLICATE KEY UPDATE
        token = VALUES(token), expires_at = VALUES(expires_at), room = VALUES(room)",
    ),
    (
        "renew_shared",
        include_str!("../sql/mysql/renew_shares.sql"),
    ),
    // For as long as the connection waits for any row.
    ("renew_in_turn", "{renew_shared}"),
    (
        "purge_shared",
        include_str!("../sql/mysql/purge_shares.sql"),
    ),
    (
        "announce",
        concat!("{lock}\n", include_str!("../sql/announce.sql")),
    ),
    ("session_ended", SESSION_ENDED),
    (
        "end_with_session",
        include_str!("../sql/mysql/session_ended.sql"),
    ),
    ("notify", "NULL"),
    ("server", SERVER),
    ("wait", WAIT),
    ("may", MAY),
];

#[derive(Debug)]
pub(super) struct Queries {
    /// Inserts the row of a new name for its holder.
    pub(super) acquire_new: Template,
    pub(super) session: Template,
}

impl Queries {
    /// `maria`: whether the server is MariaDB; `rules`: what the store can do.
    pub(super) fn new(table: &Table, maria: bool, rules: Capabilities) -> (Common, Self) {
        let schema = table.schema().map(|schema| format!("'{schema}'"));
        let schema = schema.as_deref().unwrap_or("DATABASE()");
        let words = &[WORDS, &[("schema", schema)]].concat();
        let template =
            |query: &str| Template::read(&of_server(query, maria), table, sqlx::MySql::SYNTAX);
        let read = |query: &str| template(&write(query, words));
        let queries = Self {
            acquire_new: read(include_str!("../sql/mysql/acquire_new.sql")),
            session: read(include_str!("../sql/mysql/session.sql")),
        };
        (Common::new(words, rules, template), queries)
    }
}

/// Keeps what this server reads of a file that is written for both.
fn of_server(file: &str, maria: bool) -> String {
    let mut text = String::with_capacity(file.len());
    let mut rest = file;
    while let Some((before, comment)) = rest.split_once("/*") {
        text.push_str(before);
        let (words, after) = comment.split_once("*/").unwrap_or((comment, ""));
        let mine = if maria { "M!100600" } else { "!80001" };
        text.push_str(words.strip_prefix(mine).unwrap_or_default());
        rest = after;
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_words_of_each_server() {
        let file = "a /*!80001 b ({name}) */ c\n/*M!100600 WHERE {name} */;";
        assert_eq!(of_server(file, true), "a  c\n WHERE {name} ;");
        assert_eq!(of_server(file, false), "a  b ({name})  c\n;");
    }

    #[test]
    fn every_parameter_has_a_value() {
        for maria in [false, true] {
            // Reading a query checks it.
            Queries::new(&Table::default(), maria, Capabilities::new());
        }
    }
}
