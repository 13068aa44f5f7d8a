//! The statements of one table, and the text that is sent for each step.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::LockName;
use lockkit_core::contract::Ticket;
use sqlx::Arguments as _;
use sqlx::postgres::PgArguments;

use super::message::Message;
use crate::dialect::Which;
use crate::schema::definition;
use crate::statement::{Spelling, Statement, Values, micros, push_bytes};
use crate::table::Table;

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

/// Microseconds for which a waiter's note is good, and those that are left when it is written anew: longer
/// than a waiter's pause, so that there is a note while anybody waits.
pub(super) const NOTE: i64 = 9_000_000;
const NOTE_LEFT: i64 = 6_000_000;

/// What is left of a lease, in microseconds, once its session was found to have ended: longer than the
/// news of that takes to reach the client.
const GRACE: i64 = 250_000;

/// Tells a server from the one before its restart or failover: 31 bits of when it was started.
const SERVER: &str =
    "((extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint & 2147483647)";

const ENDED: &str = include_str!("../sql/postgres/ended.sql");

/// A step that every hold needs: sent as text, or prepared by the session.
#[derive(Debug)]
pub(super) struct Step {
    statement: Statement,
    prepared: Arc<str>,
    /// What is bound, in order.
    places: Vec<String>,
    constants: Vec<(&'static str, String)>,
}

impl Step {
    fn new(statement: Statement, constants: Vec<(&'static str, String)>) -> Self {
        let (text, places) = statement.prepared(&texts(Values::new(), &constants), SPELLING, true);
        Self {
            prepared: Arc::from(text.trim_end_matches(';')),
            places,
            statement,
            constants,
        }
    }

    pub(super) fn text(&self, ticket: &Ticket, note: i64, session: i64) -> String {
        let values = Values::of(ticket).number("note", note);
        let values = texts(values.number("session", session), &self.constants);
        self.statement.with(&values, SPELLING)
    }

    pub(super) fn prepared(&self, ticket: &Ticket, note: i64, session: i64) -> Message {
        let mut values = PgArguments::default();
        for place in &self.places {
            let added = match place.as_str() {
                "name" => values.add(ticket.name.as_str().as_bytes()),
                "holder" => values.add(ticket.holder.to_string()),
                "ttl" => values.add(micros(ticket.ttl)),
                "note" => values.add(note),
                _ => values.add(session),
            };
            // Bytes, texts and numbers can always be encoded; the server refuses what is missing.
            debug_assert!(added.is_ok(), "{place}");
        }
        Message::Prepared(Arc::clone(&self.prepared), values)
    }
}

fn texts<'a>(values: Values<'a>, constants: &[(&'static str, String)]) -> Values<'a> {
    let with = |values: Values<'a>, (place, text): &(&'static str, String)| {
        values.text(place, text.clone())
    };
    constants.iter().fold(values, with)
}

/// The statements of one table.
#[derive(Debug)]
pub(super) struct Statements {
    table: Table,
    /// Releases of every lock of the table are notified on it.
    pub(super) channel: String,
    pub(super) acquire: Step,
    pub(super) release: Step,
    renew: Statement,
    mine: Statement,
    look: Statement,
    break_lock: Statement,
    purge: Statement,
    guard: Statement,
    txlock: Statement,
    ensure: Statement,
    columns: Statement,
    places: Statement,
    session: Statement,
    is_free: Statement,
}

impl Statements {
    pub(super) fn new(table: &Table) -> Self {
        let read = |file: &str| {
            let file = file.replace("{ended}", ENDED).replace("{server}", SERVER);
            Statement::new(&file, table, SPELLING)
        };
        let channel = channel(table);
        let acquire = vec![
            ("note_left", NOTE_LEFT.to_string()),
            ("grace", GRACE.to_string()),
        ];
        let release = vec![("channel", format!("'{}'", quoted(&channel)))];
        Self {
            acquire: Step::new(read(include_str!("../sql/postgres/acquire.sql")), acquire),
            release: Step::new(read(include_str!("../sql/postgres/release.sql")), release),
            renew: read(include_str!("../sql/postgres/renew.sql")),
            mine: read(include_str!("../sql/postgres/mine.sql")),
            look: read(include_str!("../sql/postgres/look.sql")),
            break_lock: read(include_str!("../sql/postgres/break.sql")),
            purge: read(include_str!("../sql/postgres/purge.sql")),
            guard: read(include_str!("../sql/postgres/guard.sql")),
            txlock: read(include_str!("../sql/postgres/txlock.sql")),
            ensure: read(include_str!("../sql/postgres/ensure.sql")),
            columns: read(include_str!("../sql/postgres/columns.sql")),
            places: read(include_str!("../sql/postgres/places.sql")),
            session: read(include_str!("../sql/postgres/session.sql")),
            is_free: read(include_str!("../sql/postgres/is_free.sql")),
            channel,
            table: table.clone(),
        }
    }

    /// Begins a session; `random` tells it from others.
    pub(super) fn session(&self, random: u32) -> String {
        let values = Values::new().number("random", random.into());
        self.session.with(&values, SPELLING)
    }

    /// Asks whether the advisory lock of a session is free.
    pub(super) fn is_free(&self, session: i64) -> String {
        let values = Values::new().number("session", session);
        self.is_free.with(&values, SPELLING)
    }

    /// Notifies those who listen, whatever else the user has of that name.
    pub(super) fn probe(&self, probe: &str) -> String {
        let (channel, probe) = (quoted(&self.channel), quoted(probe));
        format!("SELECT pg_catalog.pg_notify('{channel}', '{probe}')")
    }

    fn on_channel<'a>(&self, values: Values<'a>) -> Values<'a> {
        values.text("channel", format!("'{}'", quoted(&self.channel)))
    }

    pub(super) fn renew(&self, tickets: &[Ticket]) -> String {
        let mut rows = String::with_capacity(120 * tickets.len());
        for (n, ticket) in tickets.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            rows.push_str(&format!("{comma}({n}, "));
            push_bytes(&mut rows, ticket.name.as_str().as_bytes(), SPELLING);
            rows.push_str(&format!(", '{}', {}", ticket.holder, micros(ticket.ttl)));
            rows.push_str(if n == 0 { "::bigint)" } else { ")" });
        }
        self.renew.with(&Values::new().text("rows", rows), SPELLING)
    }

    pub(super) fn mine(&self, ticket: &Ticket) -> String {
        self.mine.with(&Values::of(ticket), SPELLING)
    }

    pub(super) fn break_lock(&self, name: &LockName) -> String {
        let values = self.on_channel(Values::new().name(name));
        self.break_lock.with(&values, SPELLING)
    }

    pub(super) fn look(&self, which: Which<'_>) -> String {
        let mut condition = String::new();
        match which {
            Which::Name(name) => {
                condition.push_str("l.name = ");
                push_bytes(&mut condition, name.as_str().as_bytes(), SPELLING);
            }
            Which::Prefix(prefix) => {
                condition.push_str(&format!("substring(l.name FROM 1 FOR {}) = ", prefix.len()));
                push_bytes(&mut condition, prefix.as_bytes(), SPELLING);
            }
        }
        let values = Values::new().text("condition", condition);
        self.look.with(&values, SPELLING)
    }

    pub(super) fn purge(&self, unused_for: Duration) -> String {
        let values = Values::new().number("age", micros(unused_for));
        self.purge.with(&values, SPELLING)
    }

    pub(super) fn guard(&self, ticket: &Ticket, token: lockkit_core::FencingToken) -> String {
        let values = Values::of(ticket).number("token", token.get().cast_signed());
        self.guard.with(&values, SPELLING)
    }

    pub(super) fn txlock(&self, name: &LockName) -> String {
        self.txlock.with(&Values::new().name(name), SPELLING)
    }

    pub(super) fn ensure(&self, name: &LockName) -> String {
        self.ensure.with(&Values::new().name(name), SPELLING)
    }

    pub(super) fn columns(&self) -> String {
        let relation = format!("'{}'", quoted(&self.table.quoted('"')));
        let values = Values::new().text("relation", relation);
        self.columns.with(&values, SPELLING)
    }

    pub(super) fn places(&self) -> String {
        let schema = match self.table.schema() {
            Some(schema) => format!("'{schema}'"),
            None => "null::text".to_owned(),
        };
        let values = Values::new().text("schema", schema);
        self.places.with(&values, SPELLING)
    }

    /// Makes the table. Two that make it at once would meet an error in the catalogue: they take turns.
    /// Without `BEGIN`: the message is one transaction all the same, and ends with its error.
    pub(super) fn create(&self) -> String {
        let create = ddl(&self.table);
        let turn = i64::from_be_bytes(*b"lockkit\0");
        format!("SELECT pg_advisory_xact_lock({turn}); {create}")
    }
}

/// Where releases in a table are notified. A long name is hashed: the server takes 63 bytes.
fn channel(table: &Table) -> String {
    let channel = format!("lockkit_{table}");
    if channel.len() < 64 {
        return channel;
    }
    // FNV-1a: the same in every version of the client.
    let hash = channel
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("lockkit_{hash:016x}")
}

fn quoted(text: &str) -> String {
    text.replace('\'', "''")
}

#[cfg(test)]
mod tests {
    use lockkit_core::{ClientId, HolderId};

    use super::*;

    /// A place without a value would be an error of the server, and a value that is not hexadecimal
    /// a way in.
    #[test]
    fn every_statement_is_whole() {
        let statements = Statements::new(&Table::default());
        let name = LockName::new("a'; DROP TABLE x; --").unwrap();
        let holder = HolderId::new(ClientId::random(), 1);
        let ticket = Ticket::new(name.clone(), holder, Duration::from_secs(30));
        let token = lockkit_core::FencingToken::new(7).unwrap();
        for text in [
            statements.acquire.text(&ticket, NOTE, 1),
            statements.release.text(&ticket, 0, 0),
            statements.session(1),
            statements.is_free(1),
            statements.mine(&ticket),
            statements.renew(&[ticket.clone(), ticket.clone()]),
            statements.break_lock(&name),
            statements.look(Which::Name(&name)),
            statements.look(Which::Prefix("a'b")),
            statements.purge(Duration::from_secs(1)),
            statements.guard(&ticket, token),
            statements.txlock(&name),
            statements.ensure(&name),
            statements.columns(),
            statements.places(),
        ] {
            assert!(!text.contains('{') && !text.contains("DROP"), "{text}");
            assert!(!text.contains("now()"), "{text}");
        }
    }
}
