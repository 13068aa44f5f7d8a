//! The connection to the file. SQLite has one writer per file, so that one connection is enough.

use std::fs::metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt as _;
use lockkit_core::contract::Ticket;
use lockkit_core::{BackendError, LockName, Outcome};
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{AssertSqlSafe, Connection as _, Either, Executor as _, Row as _, SqliteConnection};
use tokio::sync::Mutex;

use super::error::ERRORS;
use super::statements::{Statements, ddl};
use crate::config::Options;
use crate::dialect::Source;
use crate::error::{Phase, Problem};
use crate::schema::{Schema, misfit};
use crate::statement::micros;

/// Processes that create one file at the same time get in each other's way: each tries this often.
const OPENINGS: u32 = 20;

const COLUMNS: [(&str, &str); 6] = [
    ("name", "BLOB"),
    ("holder", "TEXT"),
    ("token", "INTEGER"),
    ("expires_at", "INTEGER"),
    ("waiting_until", "INTEGER"),
    ("session", "INTEGER"),
];

/// SQLite: a file, for the processes of one machine.
#[derive(Debug)]
pub struct Sqlite {
    source: Source<sqlx::Sqlite>,
    options: Options,
    pub(super) statements: Statements,
    connection: Mutex<Option<Connection>>,
}

#[derive(Debug)]
struct Connection {
    inner: SqliteConnection,
    /// The file that it has open.
    file: Option<FileId>,
}

/// A value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Bytes(Vec<u8>),
    Text(String),
    Number(i64),
    Null,
}

impl Value {
    pub(super) fn name(name: &LockName) -> Self {
        Self::Bytes(name.as_str().as_bytes().to_vec())
    }

    pub(super) fn holder(ticket: &Ticket) -> Self {
        Self::Text(ticket.holder.to_string())
    }

    /// The first values of each statement that sets a lease: name, holder, length.
    pub(super) fn lease(ticket: &Ticket) -> [Self; 3] {
        [
            Self::name(&ticket.name),
            Self::holder(ticket),
            Self::Number(micros(ticket.ttl)),
        ]
    }
}

/// The result of a statement.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) rows: Vec<SqliteRow>,
    /// The number of rows that it changed.
    pub(super) changed: u64,
}

/// Device and inode: a file of the same name may be another file.
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

impl Sqlite {
    /// Opens the file, and creates or checks the table.
    pub(super) async fn connect(
        source: Source<sqlx::Sqlite>,
        options: Options,
    ) -> Result<Self, BackendError> {
        let this = Self {
            statements: Statements::new(&options.table),
            source,
            options,
            connection: Mutex::new(None),
        };
        this.refuse_network_fs()?;
        if this.columns().await?.is_empty() && this.options.schema == Schema::Create {
            let create = Arc::from(ddl(&this.options.table));
            this.ask("open", &create, []).await?;
        }
        let found = this.columns().await?;
        match misfit(&this.options.table, &COLUMNS, &found) {
            None => Ok(this),
            Some(text) => Err(ERRORS.fault("open", Problem::Schema, Outcome::Rejected, text)),
        }
    }

    fn connect_options(&self) -> SqliteConnectOptions {
        let options = self.source.options();
        match self.options.schema {
            Schema::Create => options,
            Schema::Check => options.create_if_missing(false),
        }
    }

    /// Refuses a file system that several machines share: SQLite's log is shared memory of one of them.
    fn refuse_network_fs(&self) -> Result<(), BackendError> {
        if self.options.allow_network_fs {
            return Ok(());
        }
        let path = PathBuf::from(self.connect_options().get_filename());
        let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let Some(kind) = network_fs(parent.unwrap_or(Path::new("."))) else {
            return Ok(());
        };
        let text = format!(
            "`{}` is on a network file system ({kind}), where machines may not see each other's locks: \
             use a local disk or another store, or, if all that open it run on this machine, \
             `allow_network_fs=true`",
            path.display()
        );
        Err(ERRORS.fault("open", Problem::Refused, Outcome::Rejected, text))
    }

    async fn columns(&self) -> Result<Vec<(String, String)>, BackendError> {
        let table = &self.options.table;
        let values = [
            Value::Text(table.name().to_owned()),
            Value::Text(table.schema().unwrap_or("main").to_owned()),
        ];
        let reply = self.ask("open", &self.statements.columns, values).await?;
        let column = |row: &SqliteRow| Ok((row.try_get(0)?, row.try_get(1)?));
        let columns: Result<_, sqlx::Error> = reply.rows.iter().map(column).collect();
        columns.map_err(|_| ERRORS.unreadable("open"))
    }

    /// Runs one statement on the file that has the name now: if the file was deleted and created anew,
    /// other processes use the new one.
    pub(super) async fn ask(
        &self,
        operation: &'static str,
        statement: &Arc<str>,
        values: impl Into<Vec<Value>>,
    ) -> Result<Reply, BackendError> {
        let options = self.connect_options();
        let mut slot = self.connection.lock().await;
        let file = id_of(options.get_filename());
        let connection = match slot.take().filter(|open| open.file == file) {
            Some(connection) => connection,
            None => Box::pin(connect(&options, operation)).await?,
        };
        let statement = Arc::clone(statement);
        let reply = run(&mut slot.insert(connection).inner, statement, values.into()).await;
        if matches!(reply, Err(sqlx::Error::WorkerCrashed)) {
            *slot = None;
        }
        reply.map_err(|error| ERRORS.of(operation, Phase::Asking, &error))
    }
}

#[cfg(unix)]
use lockkit_core::file::network_fs;

/// Not known here.
#[cfg(not(unix))]
const fn network_fs(_: &Path) -> Option<&'static str> {
    None
}

async fn connect(
    options: &SqliteConnectOptions,
    operation: &'static str,
) -> Result<Connection, BackendError> {
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match SqliteConnection::connect_with(options).await {
            Ok(inner) => {
                let file = id_of(options.get_filename());
                return Ok(Connection { inner, file });
            }
            Err(error) => ERRORS.of(operation, Phase::Connecting, &error),
        };
        if tries == OPENINGS || error.outcome() == Outcome::Rejected {
            return Err(error);
        }
        // Two processes that turn a new file to write-ahead logging get an error at once, whatever
        // `busy_timeout` is.
        let pause = fastrand::u64(5..50);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Runs one statement on a connection.
pub(super) async fn run(
    connection: &mut SqliteConnection,
    statement: Arc<str>,
    values: Vec<Value>,
) -> Result<Reply, sqlx::Error> {
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for value in values {
        query = match value {
            Value::Bytes(bytes) => query.bind(bytes),
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
            Value::Null => query.bind(None::<Vec<u8>>),
        };
    }
    let mut reply = Reply::default();
    let mut stream = connection.fetch_many(query);
    while let Some(item) = stream.try_next().await? {
        match item {
            Either::Left(done) => reply.changed += done.rows_affected(),
            Either::Right(row) => reply.rows.push(row),
        }
    }
    Ok(reply)
}
