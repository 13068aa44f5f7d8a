//! MySQL and MariaDB: rows that are locked for a moment by each step, or for as long as a hold lasts.

mod admin;
mod config;
mod definition;
mod error;
mod guard;
mod kept;
mod message;
#[cfg(feature = "mutants")]
mod mutant;
mod pin;
mod pins;
mod renew;
mod seen;
mod server;
mod session;
mod steps;
mod texts;

use crate::backend::SqlStore;
use crate::schema::definition;
use crate::statement::{Spelling, Statement};
use crate::table::Table;

use kept::{Kept, words};

pub use steps::Mysql;

/// Keeps locks in a table of MySQL 8 or MariaDB 10.6, or later.
pub type MysqlStore = SqlStore<Mysql>;

const TABLE: &str = include_str!("../sql/mysql/table.sql");

const SPELLING: Spelling = Spelling {
    quote: '`',
    bytes: ("x'", "'"),
    // When the statement began, in UTC, and what has passed since then. The second part is a difference
    // of local times: the remainder takes a change of summer time out.
    clock: "(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6)) \
            + GREATEST(0, MOD(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)), 900000000)))",
};

/// The statements that make the table.
pub(crate) fn ddl(table: &Table) -> String {
    definition(TABLE, table, SPELLING.quote)
}

/// The statements, ready to take their values.
#[derive(Debug)]
struct Statements {
    /// The same of a lease, for sessions that keep it.
    acquire_kept: Kept,
    release_kept: Kept,
    acquire: Statement,
    acquire_new: Statement,
    pin: Statement,
    look_again: Statement,
    renew: Statement,
    renew_one: Statement,
    renewed: Statement,
    release: Statement,
    look: Statement,
    unlocked: Statement,
    break_lock: Statement,
    purge: Statement,
    guard: Statement,
    make_row: Statement,
    txlock: Statement,
}

impl Statements {
    /// `maria`: which make of server it is.
    fn new(table: &Table, maria: bool, change: impl Fn(&str) -> String) -> Self {
        let read = |file: &str| Statement::new(&words(&change(file), maria), table, SPELLING);
        let acquire = read(include_str!("../sql/mysql/acquire.sql"));
        let release = read(include_str!("../sql/mysql/release.sql"));
        Self {
            acquire_kept: Kept::new(&acquire),
            release_kept: Kept::new(&release),
            acquire,
            acquire_new: read(include_str!("../sql/mysql/acquire_new.sql")),
            pin: read(include_str!("../sql/mysql/pin.sql")),
            look_again: read(include_str!("../sql/mysql/look_again.sql")),
            renew: read(include_str!("../sql/mysql/renew.sql")),
            renew_one: read(include_str!("../sql/mysql/renew_one.sql")),
            renewed: read(include_str!("../sql/mysql/renewed.sql")),
            release,
            look: read(include_str!("../sql/mysql/look.sql")),
            unlocked: read(include_str!("../sql/mysql/unlocked.sql")),
            break_lock: read(include_str!("../sql/mysql/break.sql")),
            purge: read(include_str!("../sql/mysql/purge.sql")),
            guard: read(include_str!("../sql/mysql/guard.sql")),
            make_row: read(include_str!("../sql/mysql/make_row.sql")),
            txlock: read(include_str!("../sql/mysql/txlock.sql")),
        }
    }
}
