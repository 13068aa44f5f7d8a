//! Opens the file, and creates or checks the table.

use std::path::Path;

use lockkit_core::Capabilities;
#[cfg(unix)]
use lockkit_core::file::network_fs;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};

use super::driver::ERRORS;
use super::queries;
use crate::config::{Options, Schema};
use crate::driver::Source;
use crate::error::{Problem, Result};
use crate::pool::Pool;
use crate::queries::Common;
use crate::steps::check_table;

/// Opens the file, and finds the table or creates it.
pub(super) async fn open(
    source: Source<sqlx::Sqlite>,
    options: &Options,
    rules: Capabilities,
) -> Result<(Pool<sqlx::Sqlite>, Common)> {
    if options.pin {
        let text = "a file has no sessions that a hold could end with: open it without `pin`";
        return Err(ERRORS.rejected("open", Problem::Refused, text));
    }
    refuse_network_fs(network_fs, source.options().get_filename(), options)?;
    let change: fn(SqliteConnectOptions) -> SqliteConnectOptions = match options.schema {
        // The journal mode stays with the file, which may be that of another program.
        Schema::Check => |file| file.create_if_missing(false),
        Schema::Create if options.wal => |file| file.journal_mode(SqliteJournalMode::Wal),
        Schema::Create => |file| file,
    };
    let pool = Pool::new(source, change, options, true);
    let common = queries::new(&options.table, rules);
    check_table(&pool, &common, options).await?;
    Ok((pool, common))
}

/// Refuses a file system that several machines share, unless it is allowed: SQLite's log is shared memory of one of them.
/// `network_fs` returns the kind of network file system that a directory is on.
fn refuse_network_fs(
    network_fs: impl Fn(&Path) -> Option<&'static str>,
    path: &Path,
    options: &Options,
) -> Result<()> {
    if options.allow_network_fs {
        return Ok(());
    }
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

    #[test]
    fn refuses_a_network_file_system_unless_it_is_allowed() {
        let mut options = Options::default();
        let refuse = |options: &Options| {
            let on_nfs = |asked: &Path| (asked == Path::new("/srv")).then_some("NFS");
            refuse_network_fs(on_nfs, Path::new("/srv/locks.db"), options)
        };
        let error = refuse(&options).unwrap_err();
        assert_eq!(error.outcome(), Outcome::Rejected);
        let said = fault_of(&error).unwrap().to_string();
        assert!(said.contains("(NFS)"), "{said}");
        assert!(said.contains("`allow_network_fs=true`"), "{said}");
        options.allow_network_fs = true;
        refuse(&options).unwrap();
    }
}
