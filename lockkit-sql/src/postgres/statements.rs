//! The statements, and the text that is sent for each step.

use std::time::Duration;

use lockkit_core::LockName;
use lockkit_core::backend::Ticket;

use super::kept::{Kept, Kind, Place, Step};
use super::{SPELLING, TABLE};
use crate::config::Options;
use crate::dialect::Which;
use crate::schema::definition;
use crate::statement::{Statement, Values, micros, push_bytes};
use crate::table::Table;

/// A waiter's note is good for so long, and is written anew when less than this is left: longer than
/// the pause between two looks of a waiter, so that it is there while somebody waits.
const NOTE: i64 = 9_000_000;
const NOTE_LEFT: i64 = 6_000_000;

/// The lease of a pin between its grant and the lock of its row, which come in one message.
const PIN_LEASE: i64 = 100_000;

/// The places of the steps that are kept; the release has the first two, a short acquire three.
const TAKING: &[(&str, Place)] = &[
    ("name", Place::Name),
    ("holder", Place::Holder),
    ("lease", Place::Lease),
    ("mark", Place::Note),
];

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
    acquire_kept: Kept,
    acquire_new_kept: Kept,
    release_kept: Kept,
    look: Statement,
    break_lock: Statement,
    break_pin: Statement,
    break_ended: Statement,
    purge: Statement,
    guard: Statement,
    txlock: Statement,
    ensure: Statement,
    columns: Statement,
    places: Statement,
    pin: Statement,
    ended: Statement,
    #[cfg(feature = "mutants")]
    one_transaction: bool,
}

impl Statements {
    #[cfg_attr(
        not(feature = "mutants"),
        expect(
            unused_variables,
            reason = "the options name the statements that tests break"
        )
    )]
    pub(super) fn new(options: &Options, table: &Table) -> Self {
        let table = table.clone();
        let read = |file: &str| {
            #[cfg(feature = "mutants")]
            if let Some(mutant) = options.mutant {
                let file = super::mutant::broken(mutant, file);
                return Statement::new(&file, &table, SPELLING);
            }
            Statement::new(file, &table, SPELLING)
        };
        let channel = channel(&table);
        let acquire = read(include_str!("../sql/postgres/acquire.sql"));
        let acquire_new = read(include_str!("../sql/postgres/acquire_new.sql"));
        let release = read(include_str!("../sql/postgres/release.sql"));
        let lease = Values::new()
            .flag("pinned", false)
            .number("remark", NOTE_LEFT);
        let untold = told(Values::new().flag("tell", false), &channel);
        Self {
            acquire_kept: Kept::new(&acquire, &TAKING[..3], &lease),
            acquire_new_kept: Kept::new(&acquire_new, TAKING, &lease),
            release_kept: Kept::new(&release, &TAKING[..2], &untold),
            acquire,
            acquire_new,
            renew: read(include_str!("../sql/postgres/renew.sql")),
            release,
            mine: read(include_str!("../sql/postgres/mine.sql")),
            look: read(include_str!("../sql/postgres/look.sql")),
            break_lock: read(include_str!("../sql/postgres/break.sql")),
            break_pin: read(include_str!("../sql/postgres/break_pin.sql")),
            break_ended: read(include_str!("../sql/postgres/break_ended.sql")),
            purge: read(include_str!("../sql/postgres/purge.sql")),
            guard: read(include_str!("../sql/postgres/guard.sql")),
            txlock: read(include_str!("../sql/postgres/txlock.sql")),
            ensure: read(include_str!("../sql/postgres/ensure.sql")),
            columns: read(include_str!("../sql/postgres/columns.sql")),
            places: read(include_str!("../sql/postgres/places.sql")),
            pin: read(include_str!("../sql/postgres/pin.sql")),
            ended: read(include_str!("../sql/postgres/ended.sql")),
            channel,
            #[cfg(feature = "mutants")]
            one_transaction: options.mutant == Some(crate::SqlMutant::TokenRaisedInsidePin),
            table,
        }
    }

    /// A step with its values in its text.
    pub(super) fn plain(&self, step: &Step) -> String {
        match step.kind {
            Kind::Acquire => self
                .acquire
                .with(&taking(&step.ticket, step.note, None), SPELLING),
            Kind::AcquireNew => {
                let values = taking(&step.ticket, step.note, None);
                self.acquire_new.with(&values, SPELLING)
            }
            Kind::Release => {
                let values = Values::of(&step.ticket).flag("tell", false);
                self.release.with(&told(values, &self.channel), SPELLING)
            }
        }
    }

    /// A step whose values travel apart from it.
    pub(super) const fn kept(&self, kind: Kind) -> &Kept {
        match kind {
            Kind::Acquire => &self.acquire_kept,
            Kind::AcquireNew => &self.acquire_new_kept,
            Kind::Release => &self.release_kept,
        }
    }

    /// Takes the lock and pins it, in one message: first the row is written and committed, with its
    /// token, then it is locked. `calm`: in the short way, which answers nothing if it is not free.
    pub(super) fn acquire_pinned(&self, ticket: &Ticket, note: bool, calm: bool) -> String {
        let take = if calm {
            &self.acquire
        } else {
            &self.acquire_new
        };
        let take = take.with(&taking(ticket, note, Some(PIN_LEASE)), SPELLING);
        let values = Values::of(ticket).text("idle", idle(ticket.ttl).to_string());
        let pin = self.pin.with(&values, SPELLING);
        let separate = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {take} COMMIT; {pin}");
        #[cfg(feature = "mutants")]
        if self.one_transaction {
            return separate.replace("COMMIT; BEGIN ISOLATION LEVEL READ COMMITTED;", "");
        }
        separate
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

    /// Lets the session of a pin be silent for so long.
    pub(super) fn silence(ttl: Duration) -> String {
        let idle = idle(ttl);
        format!("SET LOCAL idle_in_transaction_session_timeout = {idle}")
    }

    /// Ends the hold of a ticket in the transaction that pins it.
    pub(super) fn unpin(&self, ticket: &Ticket) -> String {
        format!("{} COMMIT;", self.release_pin(ticket))
    }

    /// Asks what became of a transaction.
    pub(super) fn ended(&self, transaction: i64) -> String {
        let values = Values::new().number("transaction", transaction);
        self.ended.with(&values, SPELLING)
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
        let relation = format!("'{}'", self.table.quoted('"').replace('\'', "''"));
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
        let create = definition(TABLE, &self.table, SPELLING.quote);
        let turn = i64::from_be_bytes(*b"lockkit\0");
        format!("SELECT pg_advisory_xact_lock({turn}); {create}")
    }
}

/// The milliseconds of silence after which the server ends a pin: not before its lease, which may be
/// longer than the server can count.
fn idle(ttl: Duration) -> i32 {
    i32::try_from(ttl.as_nanos().div_ceil(1_000_000))
        .unwrap_or(i32::MAX)
        .max(1)
}

/// Where releases in a table are told. A long name is hashed: the server takes 63 bytes.
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

/// How long a waiter's note is good for; none if it leaves none.
pub(super) const fn note(note: bool) -> i64 {
    if note { NOTE } else { 0 }
}

fn told<'a>(values: Values<'a>, channel: &str) -> Values<'a> {
    values.text("channel", format!("'{}'", channel.replace('\'', "''")))
}

fn taking(ticket: &Ticket, note: bool, pin: Option<i64>) -> Values<'_> {
    Values::of(ticket)
        .number("lease", pin.unwrap_or_else(|| micros(ticket.ttl)))
        .flag("pinned", pin.is_some())
        .number("mark", self::note(note))
        .number("remark", NOTE_LEFT)
}

#[cfg(test)]
mod tests {
    use lockkit_core::{ClientId, HolderId};

    use super::*;

    /// A place without a value would be an error of the server, and a value that is not hexadecimal
    /// a way in.
    #[test]
    fn every_statement_is_whole() {
        let statements = Statements::new(&Options::default(), &Table::default());
        let name = LockName::new("a'; DROP TABLE x; --").unwrap();
        let holder = HolderId::new(ClientId::random(), 1);
        let ticket = Ticket::new(name.clone(), holder, Duration::from_secs(30));
        let token = lockkit_core::FencingToken::new(7).unwrap();
        let plain = |kind, note| {
            let ticket = ticket.clone();
            statements.plain(&Step { kind, ticket, note })
        };
        for text in [
            plain(Kind::Acquire, false),
            plain(Kind::AcquireNew, true),
            plain(Kind::Release, false),
            statements.acquire_pinned(&ticket, true, false),
            statements.acquire_pinned(&ticket, true, true),
            statements.unpin(&ticket),
            statements.mine(&ticket),
            statements.ended(7),
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
            statements.places(),
        ] {
            assert!(!text.contains('{') && !text.contains("DROP"), "{text}");
            assert!(!text.contains("now()"), "{text}");
        }
    }
}
