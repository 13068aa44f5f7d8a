//! The driver of SQLite, and its result codes.

use std::fs::metadata;
use std::path::Path;
use std::time::Duration;

use lockkit_core::Outcome;
use lockkit_core::store::Backoff;
use sqlx::sqlite::{SqliteConnectOptions, SqliteQueryResult};
use sqlx::{Connection as _, Execute, Executor as _, SqliteConnection};
use tokio::time::sleep;

use crate::driver::{Driver, FileId, Source, Yields};
use crate::error::{Errors, Problem};
use crate::table::Types;
use crate::values::Syntax;

pub(super) const ERRORS: Errors = Errors {
    backend: "sqlite",
    classify,
    conflicts: &[],
    unprepared: &[],
};

/// How often a file is opened again that another process is creating.
const OPENINGS: u32 = 20;
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

impl Driver for sqlx::Sqlite {
    const ERRORS: Errors = ERRORS;
    const SYNTAX: &'static Syntax = &Syntax {
        quote: '"',
        bytes: ("x'", "'"),
        clock: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
        numbered: Some('?'),
        names: None,
    };
    const TYPES: &'static Types = &Types {
        before: "",
        rights: "",
        bytes: "BLOB",
        holder: "TEXT",
        number: "INTEGER",
        key: "",
        options: "",
        parts: &[],
    };
    /// A file has one writer at a time.
    const ALONE: bool = true;

    /// Processes that turn a new file to write-ahead logging at the same time get an error at once, whatever
    /// `busy_timeout` is.
    async fn connect(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
        let mut backoff = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
        for _ in 1..OPENINGS {
            match SqliteConnection::connect_with(options).await {
                Err(error) if is_transient(&error) => sleep(backoff.pause()).await,
                result => return result,
            }
        }
        SqliteConnection::connect_with(options).await
    }

    fn address(options: &SqliteConnectOptions) -> String {
        options.get_filename().display().to_string()
    }

    fn file(source: &Source<Self>) -> Option<FileId> {
        source.read(|options| file_id(options.get_filename()))
    }

    fn send<'c>(
        connection: &'c mut SqliteConnection,
        message: impl Execute<'static, Self> + 'static,
    ) -> Yields<'c, Self> {
        connection.fetch_many(message)
    }

    fn counts(done: &SqliteQueryResult) -> (u64, u64) {
        (done.rows_affected(), 0)
    }
}

fn is_transient(error: &sqlx::Error) -> bool {
    ERRORS.of("open", true, error).outcome() != Outcome::Rejected
}

#[cfg(unix)]
fn file_id(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;

    let found = metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn file_id(path: &Path) -> Option<FileId> {
    metadata(path).ok().map(|_| (0, 0))
}

fn classify(code: &str, message: &str) -> (Problem, Outcome) {
    // The extended code has the reason in its upper bytes.
    let code = code.parse().unwrap_or(1) & 0xff;
    match code {
        1 if message.starts_with("no such") => (Problem::Schema, Outcome::Rejected),
        // BUSY, LOCKED, INTERRUPT, SCHEMA (changed under us), PROTOCOL (locking of the WAL).
        5 | 6 | 9 | 15 | 17 => (Problem::Busy, Outcome::Unavailable),
        // PERM, AUTH.
        3 | 23 => (Problem::Permission, Outcome::Rejected),
        8 => (Problem::ReadOnly, Outcome::Rejected),
        // NOMEM, FULL: the statement was rolled back.
        7 | 13 => (Problem::Limit, Outcome::Unavailable),
        // A write or its sync failed: what reached the disk is not known.
        10 => (Problem::Limit, Outcome::Indeterminate),
        14 => (Problem::Connection, Outcome::Unavailable),
        _ => (Problem::Refused, Outcome::Rejected),
    }
}
