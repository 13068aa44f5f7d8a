//! The SQL statements of MySQL and MariaDB, as text and prepared.

use std::sync::Arc;

use lockkit_core::contract::Ticket;
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, MySql};

use crate::dialect::Which;
use crate::schema::definition;
use crate::statement::{Spelling, Statement, Values, micros, push_bytes};
use crate::table::Table;

const TABLE: &str = include_str!("../sql/mysql/table.sql");

pub(super) const SPELLING: Spelling = Spelling {
    quote: '`',
    bytes: ("x'", "'"),
    // When the statement began, in UTC, and what has passed since then. The second part is a difference
    // of local times: the remainder removes a change of summer time.
    clock: "(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) \
            + GREATEST(0, MOD(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)), 900000000)))",
};

/// 31 bits that differ between the servers of one database: after a failover the sessions of the old
/// server are unknown, and not ended.
const SERVER: &str = "(CRC32(CONCAT(@@server_id, '@', @@hostname)) & 2147483647)";

/// The statement that creates the table.
pub(crate) fn ddl(table: &Table) -> String {
    definition(TABLE, table, SPELLING.quote)
}

#[derive(Debug)]
pub(super) struct Statements {
    pub(super) acquire: Step,
    acquire_new: Statement,
    pub(super) release: Step,
    pub(super) look_again: Statement,
    pub(super) renew: Statement,
    pub(super) session: Statement,
    pub(super) session_ended: Statement,
    look: Statement,
    pub(super) break_lock: Statement,
    pub(super) purge: Statement,
    pub(super) guard: Statement,
    pub(super) make_row: Statement,
    pub(super) txlock: Statement,
    pub(super) columns: Statement,
}

/// A statement that is prepared where the server allows it.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) text: Statement,
    pub(super) prepared: Prepared,
}

/// A statement as the server prepares it, and the names of its parameters, in order.
#[derive(Debug)]
pub(super) struct Prepared {
    text: Arc<str>,
    parameters: Vec<String>,
}

/// The values of a [`Step`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Args<'a> {
    pub(super) ticket: &'a Ticket,
    /// The session of a pin, or 0.
    pub(super) session: i64,
}

impl<'a> Args<'a> {
    pub(super) fn values(self) -> Values<'a> {
        Values::of(self.ticket).number("session", self.session)
    }
}

impl Prepared {
    fn new(statement: &Statement) -> Self {
        let (text, parameters) = statement.prepared(&Values::new(), SPELLING, false);
        Self {
            text: Arc::from(text.trim_end_matches(';')),
            parameters,
        }
    }

    pub(super) fn query<'a>(&self, args: Args<'a>) -> Query<'a, MySql, MySqlArguments> {
        let ticket = args.ticket;
        let mut query = sqlx::query(AssertSqlSafe(Arc::clone(&self.text)));
        for parameter in &self.parameters {
            query = match parameter.as_str() {
                "name" => query.bind(ticket.name.as_str().as_bytes()),
                "holder" => query.bind(ticket.holder.to_string().into_bytes()),
                "session" => query.bind(args.session),
                _ => query.bind(micros(ticket.ttl)),
            };
        }
        query
    }
}

impl Statements {
    /// `maria`: whether the server is MariaDB.
    pub(super) fn new(table: &Table, maria: bool) -> Self {
        let schema = table.schema().map(|schema| format!("'{schema}'"));
        let schema = schema.as_deref().unwrap_or("DATABASE()");
        let read = |file: &str| {
            let text = words(file, maria).replace("{server}", SERVER);
            Statement::new(&text.replace("{schema}", schema), table, SPELLING)
        };
        let step = |file: &str| {
            let text = read(file);
            Step {
                prepared: Prepared::new(&text),
                text,
            }
        };
        Self {
            acquire: step(include_str!("../sql/mysql/acquire.sql")),
            acquire_new: read(include_str!("../sql/mysql/acquire_new.sql")),
            release: step(include_str!("../sql/mysql/release.sql")),
            look_again: read(include_str!("../sql/mysql/look_again.sql")),
            renew: read(include_str!("../sql/mysql/renew.sql")),
            session: read(include_str!("../sql/mysql/session.sql")),
            session_ended: read(include_str!("../sql/mysql/session_ended.sql")),
            look: read(include_str!("../sql/mysql/look.sql")),
            break_lock: read(include_str!("../sql/mysql/break.sql")),
            purge: read(include_str!("../sql/mysql/purge.sql")),
            guard: read(include_str!("../sql/mysql/guard.sql")),
            make_row: read(include_str!("../sql/mysql/make_row.sql")),
            txlock: read(include_str!("../sql/mysql/txlock.sql")),
            columns: read(include_str!("../sql/mysql/columns.sql")),
        }
    }

    /// The message of an attempt on a name that may have no row.
    pub(super) fn acquire_new(&self, args: Args<'_>) -> String {
        let values = args.values();
        let acquire = self.acquire.text.with(&values, SPELLING);
        [acquire, self.acquire_new.with(&values, SPELLING)].join("\n")
    }

    pub(super) fn look(&self, which: Which<'_>) -> String {
        let mut condition;
        match which {
            Which::Name(name) => {
                condition = "l.name = ".to_owned();
                push_bytes(&mut condition, name.as_str().as_bytes(), SPELLING);
            }
            Which::Prefix(prefix) => {
                condition = format!("LEFT(l.name, {}) = ", prefix.len());
                push_bytes(&mut condition, prefix.as_bytes(), SPELLING);
            }
        }
        let values = Values::new().text("what", condition);
        self.look.with(&values, SPELLING)
    }
}

/// Keeps what this server reads of a file that is written for both.
fn words(file: &str, maria: bool) -> String {
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
    use std::time::Duration;

    use lockkit_core::{ClientId, HolderId, LockName};

    use super::*;

    #[test]
    fn keeps_the_words_of_each_server() {
        let file = "a /*!80001 b ({name}) */ c {holder}\n/*M!100600 WHERE {name} > {ttl} */;";
        for (maria, expected, parameters) in [
            (
                true,
                "a  c ?\n WHERE ? > ? ",
                &["holder", "name", "ttl"][..],
            ),
            (false, "a  b (?)  c ?\n", &["name", "holder"]),
        ] {
            let statement = Statement::new(&words(file, maria), &Table::default(), SPELLING);
            let prepared = Prepared::new(&statement);
            assert_eq!(&*prepared.text, expected);
            assert_eq!(prepared.parameters, parameters);
        }
    }

    /// A parameter without a value would be an error of the server, and one that is not hexadecimal an
    /// injection.
    #[test]
    fn every_parameter_has_a_value() {
        let name = LockName::new("a'; DROP TABLE x; --").unwrap();
        let holder = HolderId::new(ClientId::random(), 1);
        let ticket = Ticket::new(name.clone(), holder, Duration::from_secs(30));
        for maria in [false, true] {
            let statements = Statements::new(&Table::default(), maria);
            let args = Args {
                ticket: &ticket,
                session: 7,
            };
            let values = args.values().number("wait", 1).number("random", 1);
            for text in [
                statements.acquire_new(args),
                statements.release.text.with(&values, SPELLING),
                statements.look_again.with(&values, SPELLING),
                statements.session.with(&values, SPELLING),
                statements.session_ended.with(&values, SPELLING),
                statements.break_lock.with(&values, SPELLING),
                statements.look(Which::Name(&name)),
                statements.look(Which::Prefix("a'b")),
                statements.make_row.with(&values, SPELLING),
                statements.txlock.with(&values, SPELLING),
            ] {
                assert!(!text.contains('{') && !text.contains("DROP"), "{text}");
            }
        }
    }
}
