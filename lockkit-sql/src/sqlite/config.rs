//! Which file, and the options in a URL.

use std::time::Duration;

use lockkit_core::PollRange;
use lockkit_core::url::{InvalidUrl, StoreUrl};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};

use super::Sqlite;
use crate::config::{Options, SqlStoreBuilder};
use crate::dialect::Source;
use crate::url;

/// The longest that a step waits for other writers of the file. Less than a client waits for an
/// answer, so that it hears the reason.
const BUSY: Duration = Duration::from_millis(1500);

impl From<SqliteConnectOptions> for Source<sqlx::Sqlite> {
    fn from(options: SqliteConnectOptions) -> Self {
        Self::new(options)
    }
}

/// What a file of locks needs: a log that readers do not wait for, and a table that is made.
pub(super) fn file(path: &str) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(BUSY)
        .optimize_on_close(false, None)
}

impl SqlStoreBuilder<Sqlite> {
    /// Locks in the file `path`, which is made if it is not there.
    pub fn file(path: impl AsRef<str>) -> Self {
        Self::with(file(path.as_ref()).into(), defaults())
    }

    /// Reads `sqlite:`, whose client options were taken before.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `table=app_locks` | the table | `lockkit_locks` |
    /// | `schema=create` `check` | whether a file or a table that is missing is made | `create` |
    /// | `poll=5ms..200ms` | the pauses of waiters between two looks | as shown |
    /// | `allow_network_fs=true` | opens a file on a network file system too, which is refused | `false` |
    /// | `sync=normal` `full` | whether every grant is on the disk before it is answered; with `normal` a power cut can take the last ones back | `normal` |
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
        let sync = url.options.text("sync");
        let sync = match sync.as_deref() {
            None => SqliteSynchronous::Normal,
            Some(word) => {
                let found = syncs.into_iter().find(|(known, _)| *known == word);
                let wrong = || InvalidUrl::bad_value("sync", word, "write `normal` or `full`");
                found.ok_or_else(wrong)?.1
            }
        };
        url.options.finish()?;
        url.expect(
            url.is_bare() && !url.path().is_empty(),
            "has a file and no host: write `sqlite:/var/lib/locks.db`, or `sqlite:locks.db` for a file inside the working directory",
        )?;
        let source = file(url.path()).synchronous(sync).into();
        Ok(Self::with(source, options))
    }
}

/// A look costs microseconds.
fn defaults() -> Options {
    Options {
        poll: PollRange::new(Duration::from_millis(5), Duration::from_millis(200)),
        ..Options::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SqlStoreBuilder<Sqlite>, InvalidUrl> {
        SqlStoreBuilder::<Sqlite>::from_url(&mut text.parse()?)
    }

    #[test]
    fn every_part_of_a_url_arrives() {
        let builder =
            read("sqlite:/var/a%20b.db?table=app_locks&poll=1ms..2ms&schema=check&sync=full")
                .unwrap();
        assert_eq!(builder.capabilities().poll.max, Duration::from_millis(2));
        let shown = format!("{builder:?}");
        for part in ["app_locks", "Check"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "sqlite:",
            "sqlite://host/a.db",
            "sqlite:a.db?table=a;b",
            "sqlite:a.db?sync=off",
            "sqlite:a.db?pin=true",
            "sqlite:a.db?wake=push",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
