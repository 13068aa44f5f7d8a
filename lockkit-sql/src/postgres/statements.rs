//! The statements, and the text that is sent for each step.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::LockName;
use lockkit_core::backend::Ticket;

use super::{SPELLING, TABLE};
use crate::config::Options;
use crate::dialect::Which;
use crate::pool::{READY, Ready};
use crate::schema::definition;
use crate::statement::{Prepared, Statement, Values, micros, push_bytes};
use crate::table::Table;

/// A waiter's note is good for so long, and is written anew when less than this is left: longer than
/// the pause between two looks of a waiter, so that it is there while somebody waits.
const NOTE: i64 = 9_000_000;
const NOTE_LEFT: i64 = 6_000_000;

/// The lease of a pin between its grant and the lock of its row, which come in one message.
const PIN_LEASE: i64 = 100_000;

/// The statements of one table.
#[derive(Debug)]
pub(super) struct Statements {
    table: Table,
    /// Who listens hears of every lock of the table.
    pub(super) channel: String,
    acquire: Statement,
    acquire_new: Statement,
    renew: Statement,
    release: Statement,
    mine: Statement,
    /// What sessions of the store's own keep ready, by its number.
    ready: [Arc<Prepared>; READY],
    look: Statement,
    break_lock: Statement,
    break_pin: Statement,
    break_ended: Statement,
    purge: Statement,
    guard: Statement,
    txlock: Statement,
    ensure: Statement,
    columns: Statement,
    pin: Statement,
    #[cfg(feature = "mutants")]
    one_transaction: bool,
}

impl Statements {
    pub(super) fn new(options: &Options) -> Self {
        let table = options.table.clone();
        let read = |file: &str| {
            #[cfg(feature = "mutants")]
            if let Some(mutant) = options.mutant {
                let file = super::mutant::broken(mutant, file);
                return Statement::new(&file, &table, SPELLING);
            }
            Statement::new(file, &table, SPELLING)
        };
        let channel = format!("lockkit_{}", table.to_string().replace('.', "_"));
        let acquire = read(include_str!("../sql/postgres/acquire.sql"));
        let acquire_new = read(include_str!("../sql/postgres/acquire_new.sql"));
        let release = read(include_str!("../sql/postgres/release.sql"));
        let taking = [
            ("name", "bytea"),
            ("holder", "text"),
            ("lease", "bigint"),
            ("mark", "bigint"),
        ];
        let lease = Values::new()
            .flag("pinned", false)
            .number("remark", NOTE_LEFT);
        let untold = told(Values::new().flag("tell", false), &channel);
        let ready = [
            acquire.prepared(&taking[..3], &lease, SPELLING),
            acquire_new.prepared(&taking, &lease, SPELLING),
            release.prepared(&taking[..2], &untold, SPELLING),
        ];
        Self {
            acquire,
            acquire_new,
            renew: read(include_str!("../sql/postgres/renew.sql")),
            release,
            mine: read(include_str!("../sql/postgres/mine.sql")),
            ready: ready.map(Arc::new),
            look: read(include_str!("../sql/postgres/look.sql")),
            break_lock: read(include_str!("../sql/postgres/break.sql")),
            break_pin: read(include_str!("../sql/postgres/break_pin.sql")),
            break_ended: read(include_str!("../sql/postgres/break_ended.sql")),
            purge: read(include_str!("../sql/postgres/purge.sql")),
            guard: read(include_str!("../sql/postgres/guard.sql")),
            txlock: read(include_str!("../sql/postgres/txlock.sql")),
            ensure: read(include_str!("../sql/postgres/ensure.sql")),
            columns: read(include_str!("../sql/postgres/columns.sql")),
            pin: read(include_str!("../sql/postgres/pin.sql")),
            channel,
            #[cfg(feature = "mutants")]
            one_transaction: options.mutant == Some(crate::SqlMutant::TokenRaisedInsidePin),
            table,
        }
    }

    /// Takes the lock; `whole` also where its row is not known to be there or somebody waits for it,
    /// and with a note of whoever waits.
    pub(super) fn acquire(&self, ticket: &Ticket, whole: bool, note: bool, keep: bool) -> Text {
        let values = taking(ticket, note, None);
        let (number, statement) = if whole {
            (1, &self.acquire_new)
        } else {
            (0, &self.acquire)
        };
        self.text(number, statement, &values, keep)
    }

    /// Takes the lock and pins it, in one message: first the row is written and committed, with its
    /// token, then it is locked.
    pub(super) fn acquire_pinned(&self, ticket: &Ticket, note: bool) -> String {
        let take = taking(ticket, note, Some(PIN_LEASE));
        let take = self.acquire_new.with(&take, SPELLING);
        let idle = ticket.ttl.as_millis().max(1);
        let values = Values::of(ticket).text("idle", idle.to_string());
        let pin = self.pin.with(&values, SPELLING);
        let separate = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {take} COMMIT; {pin}");
        #[cfg(feature = "mutants")]
        if self.one_transaction {
            return separate.replace("COMMIT; BEGIN ISOLATION LEVEL READ COMMITTED;", "");
        }
        separate
    }

    fn text(&self, number: usize, plain: &Statement, values: &Values<'_>, keep: bool) -> Text {
        if !keep {
            return Text::Plain(plain.with(values, SPELLING));
        }
        let prepared = &self.ready[number];
        Text::Kept {
            number,
            execute: prepared.with(values, SPELLING),
            prepared: Arc::clone(prepared),
        }
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

    /// Ends the hold of a lease.
    pub(super) fn release(&self, ticket: &Ticket, keep: bool) -> Text {
        let values = told(Values::of(ticket).flag("tell", false), &self.channel);
        self.text(2, &self.release, &values, keep)
    }

    /// Ends a hold of which everybody is told.
    pub(super) fn release_pin(&self, ticket: &Ticket) -> String {
        let values = told(Values::of(ticket).flag("tell", true), &self.channel);
        self.release.with(&values, SPELLING)
    }

    pub(super) fn mine(&self, ticket: &Ticket) -> String {
        self.mine.with(&Values::of(ticket), SPELLING)
    }

    pub(super) fn break_lock(&self, name: &LockName) -> String {
        let values = told(Values::new().name(name), &self.channel);
        self.break_lock.with(&values, SPELLING)
    }

    pub(super) fn break_pin(&self, name: &LockName) -> String {
        self.break_pin.with(&Values::new().name(name), SPELLING)
    }

    /// Waits for the end of the session that pinned a hold.
    pub(super) fn break_ended(&self, ticket: &Ticket) -> String {
        let values = told(Values::of(ticket), &self.channel);
        self.break_ended.with(&values, SPELLING)
    }

    /// Ends the hold of a ticket in the transaction that pins it.
    pub(super) fn unpin(&self, ticket: &Ticket) -> String {
        format!("{} COMMIT;", self.release_pin(ticket))
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
        let relation = format!("'{}'", self.table.quoted('"'));
        let values = Values::new().text("relation", relation);
        self.columns.with(&values, SPELLING)
    }

    /// Makes the table. Two that make it at once would meet an error in the catalogue: they take turns.
    pub(super) fn create(&self) -> String {
        let create = definition(TABLE, &self.table, SPELLING.quote);
        let turn = i64::from_be_bytes(*b"lockkit\0");
        format!("BEGIN; SELECT pg_advisory_xact_lock({turn}); {create}\nCOMMIT;")
    }
}

fn told<'a>(values: Values<'a>, channel: &str) -> Values<'a> {
    values.text("channel", format!("'{channel}'"))
}

fn taking(ticket: &Ticket, note: bool, pin: Option<i64>) -> Values<'_> {
    Values::of(ticket)
        .number("lease", pin.unwrap_or_else(|| micros(ticket.ttl)))
        .flag("pinned", pin.is_some())
        .number("mark", if note { NOTE } else { 0 })
        .number("remark", NOTE_LEFT)
}

/// What is sent for a step.
#[derive(Debug)]
pub(super) enum Text {
    /// The whole of it.
    Plain(String),
    /// A statement that the session keeps ready, by its number, and the values of this time.
    Kept {
        number: usize,
        execute: String,
        prepared: Arc<Prepared>,
    },
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Plain(text)
    }
}

/// So long a session keeps a statement before it prepares it anew: a plan that was made when the table
/// had few rows reads all of them.
const KEPT: Duration = Duration::from_secs(60);

impl Text {
    /// What is written to a session, and the number of a statement that it keeps from then on.
    pub(super) fn to(&self, ready: Option<&mut Ready>) -> (String, Option<usize>) {
        let (number, execute, prepared) = match self {
            Self::Plain(text) => return (text.clone(), None),
            Self::Kept {
                number,
                execute,
                prepared,
            } => (*number, execute, prepared),
        };
        match ready.and_then(|ready| ready[number]) {
            Some(since) if since.elapsed() < KEPT => (execute.clone(), None),
            Some(_) => (format!("{} {execute}", prepared.anew()), Some(number)),
            None => (format!("{} {execute}", prepared.first()), Some(number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use lockkit_core::{ClientId, HolderId};
    use tokio::time::Instant;

    use super::*;

    /// A place without a value would be an error of the server, and a value that is not hexadecimal
    /// a way in.
    #[test]
    fn every_statement_is_whole() {
        let statements = Statements::new(&Options::default());
        let name = LockName::new("a'; DROP TABLE x; --").unwrap();
        let holder = HolderId::new(ClientId::random(), 1);
        let ticket = Ticket::new(name.clone(), holder, Duration::from_secs(30));
        let token = lockkit_core::FencingToken::new(7).unwrap();
        let sent = |text: Text| text.to(None).0;
        for text in [
            sent(statements.acquire(&ticket, false, false, false)),
            sent(statements.acquire(&ticket, true, true, false)),
            sent(statements.acquire(&ticket, false, false, true)),
            sent(statements.acquire(&ticket, true, true, true)),
            sent(statements.release(&ticket, false)),
            sent(statements.release(&ticket, true)),
            statements.acquire_pinned(&ticket, true),
            statements.unpin(&ticket),
            statements.mine(&ticket),
            statements.break_pin(&name),
            statements.renew(&[ticket.clone(), ticket.clone()]),
            statements.break_lock(&name),
            statements.look(Which::Name(&name)),
            statements.look(Which::Prefix("a'b")),
            statements.purge(Duration::from_secs(1)),
            statements.guard(&ticket, token),
            statements.txlock(&name),
            statements.ensure(&name),
            statements.columns(),
        ] {
            assert!(!text.contains('{') && !text.contains("DROP"), "{text}");
            assert!(!text.contains("now()"), "{text}");
        }
    }

    /// A session that another program has used must not carry out its statement for ours.
    #[test]
    fn a_kept_statement_has_a_name_of_its_own() {
        let holder = HolderId::new(ClientId::random(), 1);
        let ticket = Ticket::new(LockName::new("a").unwrap(), holder, Duration::from_secs(30));
        let named = |table: &str| {
            let table = table.parse().unwrap();
            let options = Options {
                table,
                ..Options::default()
            };
            let statements = Statements::new(&options);
            let mut ready = Ready::default();
            ready[0] = Some(Instant::now());
            let (text, kept) = statements
                .acquire(&ticket, false, false, true)
                .to(Some(&mut ready));
            assert_eq!(kept, None);
            let (name, values) = text.split_once('(').unwrap();
            let expected = format!("E'\\\\x61'::bytea, '{holder}', 30000000);");
            assert_eq!(values, expected);
            name.to_owned()
        };
        assert_eq!(named("locks"), named("locks"));
        assert_ne!(named("locks"), named("app.locks"));
    }

    #[test]
    fn a_session_prepares_what_it_does_not_have_or_has_for_long() {
        let statements = Statements::new(&Options::default());
        let holder = HolderId::new(ClientId::random(), 1);
        let ticket = Ticket::new(LockName::new("a").unwrap(), holder, Duration::from_secs(30));
        let release = statements.release(&ticket, true);
        let mut ready = Ready::default();
        let (text, kept) = release.to(Some(&mut ready));
        assert!(
            text.starts_with("PREPARE lockkit_") && kept == Some(2),
            "{text}"
        );
        ready[2] = Instant::now().checked_sub(KEPT);
        let (text, kept) = release.to(Some(&mut ready));
        assert!(
            text.starts_with("DEALLOCATE lockkit_") && kept == Some(2),
            "{text}"
        );
        assert!(
            text.contains("; PREPARE lockkit_") && text.contains("; EXECUTE lockkit_"),
            "{text}"
        );
    }
}
