//! The connection to the file, and statements on it. One writer is all that a file can have: more
//! connections would only wait for each other.

use std::fs::metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use lockkit_core::backend::Ticket;
use lockkit_core::{BackendError, LockName, Outcome};
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{AssertSqlSafe, Connection as _, Either, Executor as _, SqliteConnection};
use tokio::sync::Mutex;

use super::error::ERRORS;
use crate::config::Options;
use crate::dialect::Source;
use crate::error::{Phase, Problem};
use crate::schema::Schema;

/// Others may be making the same file their own at the same moment: so many times it is tried again.
const OPENINGS: u32 = 20;

/// The file of a store.
#[derive(Debug)]
pub(super) struct OpenFile {
    source: Source<sqlx::Sqlite>,
    /// Whether a file that is not there is made, if the source says so.
    creates: bool,
    allow_network: bool,
    #[cfg(feature = "mutants")]
    faults: crate::SqlFaults,
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    connection: SqliteConnection,
    /// Which file it is.
    file: Option<FileId>,
}

/// A value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Bytes(Vec<u8>),
    Text(String),
    Number(i64),
    Nothing,
}

impl Value {
    pub(super) fn name(name: &LockName) -> Self {
        Self::Bytes(name.as_str().as_bytes().to_vec())
    }

    pub(super) fn holder(ticket: &Ticket) -> Self {
        Self::Text(ticket.holder.to_string())
    }
}

/// What a statement answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) rows: Vec<SqliteRow>,
    /// How many rows it changed.
    pub(super) changed: u64,
}

/// Tells a file from another of the same name.
type FileId = (u64, u64);

#[cfg(unix)]
fn id_of(path: &Path) -> Option<FileId> {
    use std::os::unix::fs::MetadataExt as _;

    let found = metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn id_of(path: &Path) -> Option<FileId> {
    metadata(path).ok().map(|_| (0, 0))
}

impl OpenFile {
    pub(super) fn new(source: Source<sqlx::Sqlite>, options: &Options) -> Self {
        Self {
            source,
            creates: options.schema == Schema::Create,
            allow_network: options.allow_network_fs,
            #[cfg(feature = "mutants")]
            faults: options.faults.clone(),
            open: Mutex::new(None),
        }
    }

    fn options(&self) -> SqliteConnectOptions {
        let options = self.source.options();
        if self.creates {
            options
        } else {
            options.create_if_missing(false)
        }
    }

    /// Refuses a file system that several machines share: SQLite's log is shared memory of one of them.
    pub(super) fn refuse_network(&self) -> Result<(), BackendError> {
        if self.allow_network {
            return Ok(());
        }
        let path = PathBuf::from(self.options().get_filename());
        let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = parent.unwrap_or(Path::new("."));
        match network_fs(dir) {
            Some(kind) => Err(refusal(&path, kind)),
            None => Ok(()),
        }
    }

    /// Every request passes here, so that each can be made to fail.
    pub(super) async fn request(
        &self,
        operation: &'static str,
        statement: Arc<str>,
        values: Vec<Value>,
    ) -> Result<Answer, BackendError> {
        let request = self.run(operation, statement, values);
        #[cfg(feature = "mutants")]
        return self.faults.pass(ERRORS, operation, request).await;
        #[cfg(not(feature = "mutants"))]
        request.await
    }

    /// Carries out one statement, on the file that has the name now: one that was deleted and made anew
    /// has the locks of everybody who came later.
    async fn run(
        &self,
        operation: &'static str,
        statement: Arc<str>,
        values: Vec<Value>,
    ) -> Result<Answer, BackendError> {
        let options = self.options();
        let mut place = self.open.lock().await;
        let same = |open: &Open| open.file == id_of(options.get_filename());
        let open = match place.take().filter(same) {
            Some(open) => open,
            None => Box::pin(connect(&options, operation)).await?,
        };
        let answer = run(&mut place.insert(open).connection, statement, values).await;
        if matches!(answer, Err(sqlx::Error::WorkerCrashed)) {
            *place = None;
        }
        answer.map_err(|error| ERRORS.of(operation, Phase::Asking, &error))
    }
}

#[cfg(unix)]
use lockkit_core::file::network_fs;

/// Not known here.
#[cfg(not(unix))]
const fn network_fs(_: &Path) -> Option<&'static str> {
    None
}

fn refusal(path: &Path, kind: &str) -> BackendError {
    let text = format!(
        "`{}` is on a network file system ({kind}), where machines may not see each other's locks: use \
         a local disk or another store, or, if all that open it run on this machine, \
         `allow_network_fs=true`",
        path.display()
    );
    ERRORS.fault("open", Problem::Refused, Outcome::Rejected, text)
}

async fn connect(
    options: &SqliteConnectOptions,
    operation: &'static str,
) -> Result<Open, BackendError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match SqliteConnection::connect_with(options).await {
            Ok(connection) => {
                let file = id_of(options.get_filename());
                return Ok(Open { connection, file });
            }
            Err(error) => ERRORS.of(operation, Phase::Connecting, &error),
        };
        if tries == OPENINGS || error.outcome() == Outcome::Rejected {
            return Err(error);
        }
        // Two processes that turn a new file into one with a log of writes meet an error at once,
        // whatever the time limit for busy files.
        let pause = fastrand::u64(5..50);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Carries out one statement on a connection.
pub(super) async fn run(
    connection: &mut SqliteConnection,
    statement: Arc<str>,
    values: Vec<Value>,
) -> Result<Answer, sqlx::Error> {
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for value in values {
        query = match value {
            Value::Bytes(bytes) => query.bind(bytes),
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
            Value::Nothing => query.bind(None::<Vec<u8>>),
        };
    }
    let mut answer = Answer::default();
    let mut stream = connection.fetch_many(query);
    while let Some(item) = stream.try_next().await? {
        match item {
            Either::Left(done) => answer.changed += done.rows_affected(),
            Either::Right(row) => answer.rows.push(row),
        }
    }
    Ok(answer)
}
