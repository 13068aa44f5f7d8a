//! The options of a file, and of its URL.

use std::time::Duration;

use lockkit_core::PollRange;
use lockkit_core::url::{InvalidUrl, StoreUrl, Tls};
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};

use super::Sqlite;
use crate::builder::SqlStoreBuilder;
use crate::config::{Options, PATIENCE};
use crate::driver::Source;
use crate::url;

impl From<SqliteConnectOptions> for Source<sqlx::Sqlite> {
    fn from(options: SqliteConnectOptions) -> Self {
        Self::new(options)
    }
}

/// Opens `path`, the same file after a change of the working directory.
pub(super) fn file(path: &str) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(std::path::absolute(path).unwrap_or_else(|_| path.into()))
        .create_if_missing(true)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(PATIENCE)
        .optimize_on_close(false, None)
}

impl SqlStoreBuilder<Sqlite> {
    /// Locks in the file `path`, which is created if it is missing.
    pub fn file(path: impl AsRef<str>) -> Self {
        Self::with(file(path.as_ref()).into(), defaults(), Tls::new())
    }

    /// Reads `sqlite:`, whose client options were taken before.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `table=app_locks` | the table | `lockkit_locks` |
    /// | `schema=create` `check` | whether a missing file or table is created; with `check` the file also keeps its journal mode | `create` |
    /// | `poll=1ms..200ms` | the shortest and the longest pause between two polls of a waiter | as shown |
    /// | `allow_network_fs=true` | allows a file on a network file system | `false` |
    /// | `sync=normal` `full` | whether a grant waits for the disk; with `normal` a power cut can undo the last grants | `normal` |
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option or a part of the URL is not understood.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self, InvalidUrl> {
        let mut options = url::common(url, defaults())?;
        let network = url.options.flag("allow_network_fs")?;
        options.allow_network_fs = network.unwrap_or(options.allow_network_fs);
        let syncs = [
            ("normal", SqliteSynchronous::Normal),
            ("full", SqliteSynchronous::Full),
        ];
        let sync = url.options.choice("sync", &syncs)?;
        let sync = sync.unwrap_or(SqliteSynchronous::Normal);
        url.options.finish()?;
        // Words of SQLite that name no file, or not this one: a database in memory excludes nobody.
        let names_file = !url.path().starts_with([':', '?']) && !url.path().starts_with("file:");
        url.expect(
            url.is_bare() && !url.path().is_empty() && names_file,
            "has a file and no host: write `sqlite:/var/lib/locks.db`, or `sqlite:locks.db` for a file inside the working directory",
        )?;
        let source = file(url.path()).synchronous(sync).into();
        Ok(Self::with(source, options, Tls::new()))
    }
}

/// A poll costs microseconds. With a write-ahead log readers wait for no writer.
fn defaults() -> Options {
    Options {
        wal: true,
        poll: Some(PollRange::new(
            Duration::from_millis(1),
            Duration::from_millis(200),
        )),
        ..Options::default()
    }
}
