//! Opens the file, and creates or checks the table.

use std::path::Path;

#[cfg(unix)]
use lockkit_core::file::network_fs;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};

use super::driver::ERRORS;
use super::queries::{Queries, TYPES, ddl};
use crate::config::{Options, Schema};
use crate::driver::Source;
use crate::error::{Problem, Result};
use crate::pool::Pool;
use crate::steps::check_table;

/// Opens the file, and finds the table or creates it.
pub(super) async fn open(
    source: Source<sqlx::Sqlite>,
    options: &Options,
) -> Result<(Pool<sqlx::Sqlite>, Queries)> {
    open_on(network_fs, source, options).await
}

/// The same. `network_fs` returns the kind of network file system that a directory is on.
async fn open_on(
    network_fs: impl Fn(&Path) -> Option<&'static str>,
    source: Source<sqlx::Sqlite>,
    options: &Options,
) -> Result<(Pool<sqlx::Sqlite>, Queries)> {
    if options.pin {
        let text = "a file has no sessions that a hold could end with: open it without `pin`";
        return Err(ERRORS.rejected("open", Problem::Refused, text));
    }
    if !options.allow_network_fs {
        refuse_network_fs(network_fs, source.options().get_filename())?;
    }
    let change: fn(SqliteConnectOptions) -> SqliteConnectOptions = match options.schema {
        // The journal mode stays with the file, which may be that of another program.
        Schema::Check => |file| file.create_if_missing(false),
        Schema::Create if options.wal => |file| file.journal_mode(SqliteJournalMode::Wal),
        Schema::Create => |file| file,
    };
    let pool = Pool::new(source, change, options, true);
    let table = &options.table;
    let queries = Queries::new(table, options.capabilities());
    let (columns, probe) = (&queries.columns, &queries.common.shares.probe);
    check_table(
        &pool,
        columns,
        probe,
        &ddl(table),
        &TYPES.expected(),
        options,
    )
    .await?;
    Ok((pool, queries))
}

/// Refuses a file system that several machines share: SQLite's log is shared memory of one of them.
fn refuse_network_fs(
    network_fs: impl Fn(&Path) -> Option<&'static str>,
    path: &Path,
) -> Result<()> {
    let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let Some(kind) = network_fs(parent.unwrap_or(Path::new("."))) else {
        return Ok(());
    };
    let text = format!(
        "`{}` is on a network file system ({kind}), where machines may not see each other's locks: use a \
         local disk or another store, or, if all that open it run on this machine, `allow_network_fs=true`",
        path.display()
    );
    Err(ERRORS.rejected("open", Problem::Refused, text))
}

/// Not known here.
#[cfg(not(unix))]
const fn network_fs(_: &Path) -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    use lockkit_core::Outcome;

    use super::*;
    use crate::error::fault_of;
    use crate::sqlite::config::file;

    #[tokio::test]
    async fn refuses_a_network_file_system_unless_it_is_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        let mut options = Options::default();
        let open = async |options: &Options| {
            let asked = |asked: &Path| (asked == dir.path()).then_some("NFS");
            let source = file(path.to_str().unwrap()).into();
            open_on(asked, source, options).await
        };
        let error = open(&options).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Rejected);
        let said = fault_of(&error).unwrap().to_string();
        assert!(said.contains("(NFS)"), "{said}");
        assert!(said.contains("`allow_network_fs=true`"), "{said}");
        assert!(!path.exists(), "it was created");

        options.allow_network_fs = true;
        open(&options).await.unwrap();
        assert!(path.exists());
    }
}
