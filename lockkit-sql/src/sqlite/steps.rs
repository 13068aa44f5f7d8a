//! The steps of the contract.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::TryStreamExt as _;
use lockkit_core::backend::{Attempt, Grant, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, FencingToken, LockName, Outcome};
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{
    AssertSqlSafe, Connection as _, Either, Executor as _, Row as _, SqliteConnection, SqlitePool,
};
use tokio::sync::Mutex;

use super::error::ERRORS;
use super::{SPELLING, Statements, TABLE};
use crate::backend::Counts;
use crate::carry::Carrier;
use crate::config::Options;
use crate::dialect::{Source, Steps, Which};
use crate::error::{Phase, Problem};
use crate::remembered::Remembered;
use crate::row::{self, Row};
use crate::schema::{Schema, definition, misfit};
use crate::statement::micros;
use crate::table::Table;

/// Others may be making the same file their own at the same moment: so many times it is tried again.
const OPENINGS: u32 = 20;

const COLUMNS: [(&str, &str); 6] = [
    ("name", "BLOB"),
    ("holder", "TEXT"),
    ("token", "INTEGER"),
    ("expires_at", "INTEGER"),
    ("waiting_until", "INTEGER"),
    ("pinned", "INTEGER"),
];

/// SQLite: a file, for the processes of one machine.
#[derive(Debug)]
pub struct Sqlite {
    connections: Connections,
    statements: Statements,
    /// Names whose lock was given to this client the last time that it asked.
    calm: Remembered<()>,
}

/// One writer is all that a file can have; more connections would only wait for each other.
#[derive(Debug)]
enum Connections {
    Own(Arc<Own>, Arc<Carrier>),
    Application(SqlitePool),
}

#[derive(Debug)]
struct Own {
    options: Box<SqliteConnectOptions>,
    open: Mutex<Option<SqliteConnection>>,
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
    changed: u64,
}

impl Connections {
    /// Carries out one statement to its end: its transaction ends only there. A caller that is not
    /// polled does not keep the connection from others.
    async fn run(
        &self,
        operation: &'static str,
        statement: &Arc<str>,
        values: Vec<Value>,
    ) -> Result<Answer, BackendError> {
        match self {
            Self::Own(own, carrier) => {
                let room = own.open.try_lock().is_ok();
                let (own, statement) = (Arc::clone(own), Arc::clone(statement));
                let run = async move { own.run(operation, statement, values).await };
                match carrier.carry(room, run).await {
                    Some(answer) => answer,
                    None => Err(ERRORS.unreadable(operation)),
                }
            }
            Self::Application(pool) => {
                let connecting = |error| ERRORS.of(operation, Phase::Connecting, &error);
                let mut connection = pool.acquire().await.map_err(connecting)?;
                let answer = run(&mut connection, Arc::clone(statement), values).await;
                answer.map_err(|error| ERRORS.of(operation, Phase::Asking, &error))
            }
        }
    }
}

impl Own {
    async fn run(
        &self,
        operation: &'static str,
        statement: Arc<str>,
        values: Vec<Value>,
    ) -> Result<Answer, BackendError> {
        let mut open = self.open.lock().await;
        let connection = match open.take() {
            Some(connection) => connection,
            None => Box::pin(self.connect(operation)).await?,
        };
        let answer = run(open.insert(connection), statement, values).await;
        if matches!(answer, Err(sqlx::Error::WorkerCrashed)) {
            *open = None;
        }
        answer.map_err(|error| ERRORS.of(operation, Phase::Asking, &error))
    }

    async fn connect(&self, operation: &'static str) -> Result<SqliteConnection, BackendError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let error = match SqliteConnection::connect_with(&self.options).await {
                Ok(connection) => return Ok(connection),
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

impl Sqlite {
    pub(super) const fn statements(&self) -> &Statements {
        &self.statements
    }

    pub(super) async fn run(
        &self,
        operation: &'static str,
        statement: &Arc<str>,
        values: impl Into<Vec<Value>>,
    ) -> Result<Vec<SqliteRow>, BackendError> {
        Ok(self.ask(operation, statement, values).await?.rows)
    }

    async fn ask(
        &self,
        operation: &'static str,
        statement: &Arc<str>,
        values: impl Into<Vec<Value>>,
    ) -> Result<Answer, BackendError> {
        let values = values.into();
        self.connections.run(operation, statement, values).await
    }

    /// Makes the table if that is wished, and compares it.
    async fn prepare(&self, table: &Table, schema: Schema) -> Result<(), BackendError> {
        let found = self.columns(table).await?;
        if found.is_empty() && schema == Schema::Create {
            let create = Arc::from(definition(TABLE, table, SPELLING.quote));
            self.run("open", &create, []).await?;
        }
        let found = self.columns(table).await?;
        match misfit(table, &COLUMNS, &found) {
            None => Ok(()),
            Some(text) => Err(ERRORS.fault("open", Problem::Schema, Outcome::Rejected, text)),
        }
    }

    async fn columns(&self, table: &Table) -> Result<Vec<(String, String)>, BackendError> {
        let values = [
            Value::Text(table.name().to_owned()),
            Value::Text(table.schema().unwrap_or("main").to_owned()),
        ];
        let rows = self.run("open", &self.statements.columns, values).await?;
        let column = |row: &SqliteRow| Ok((row.try_get(0)?, row.try_get(1)?));
        let columns: Result<_, sqlx::Error> = rows.iter().map(column).collect();
        columns.map_err(|_| ERRORS.unreadable("open"))
    }

    /// Takes a lock that nobody has held since, as it seems; `None` if it was not so.
    async fn acquire_again(&self, ticket: &Ticket) -> Result<Option<FencingToken>, BackendError> {
        let now = now();
        let Some(token) = row::token(now) else {
            return Ok(None);
        };
        let values = attempt(ticket, now);
        let again = &self.statements.acquire_again;
        let answer = self.ask("attempt", again, values).await?;
        Ok((answer.changed > 0).then_some(token))
    }

    /// When a lock that an attempt found held becomes free by itself.
    async fn held(&self, name: &LockName) -> Result<Attempt, BackendError> {
        let values = [Value::name(name)];
        let rows = self
            .run("attempt", &self.statements.look_again, values)
            .await?;
        let left = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok());
        let mut held = Attempt::held();
        if let Attempt::Held { retry_after, .. } = &mut held {
            let left = left.map(|left| u64::try_from(left).unwrap_or(0));
            *retry_after = Some(Duration::from_micros(left.unwrap_or(0)));
        }
        Ok(held)
    }
}

/// What the statements of a lease begin with: name, ticket, length.
pub(super) fn lease(ticket: &Ticket) -> [Value; 3] {
    [
        Value::name(&ticket.name),
        Value::holder(ticket),
        Value::Number(micros(ticket.ttl)),
    ]
}

/// What the statements of an attempt begin with: a lease, and the moment of which its token is.
fn attempt(ticket: &Ticket, now: i64) -> [Value; 4] {
    let [name, holder, ttl] = lease(ticket);
    [name, holder, ttl, Value::Number(now)]
}

/// This moment, in microseconds since 1970: SQLite has no clock but that of its process, and of that its
/// statements see milliseconds.
#[expect(
    clippy::disallowed_methods,
    reason = "it is what `unixepoch` reads; no lease depends on it, and the row refuses a token that does not grow"
)]
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    micros(now.unwrap_or_default())
}

fn read(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    Ok(Row {
        name: row.try_get(0)?,
        holder: row.try_get(1)?,
        token: row.try_get(2)?,
        left: row.try_get(3)?,
        pinned: row.try_get::<i64, _>(4)? != 0,
    })
}

#[async_trait]
impl Steps for Sqlite {
    type Driver = sqlx::Sqlite;

    const BACKEND: &'static str = ERRORS.backend;

    fn capabilities(options: &Options) -> Capabilities {
        Capabilities::new()
            .with_poll(options.poll)
            .with_recheck(options.poll.max)
    }

    async fn open(source: Source<sqlx::Sqlite>, options: Options) -> Result<Self, BackendError> {
        let connections = match source {
            Source::Own(options) => {
                let open = Mutex::new(None);
                Connections::Own(Arc::new(Own { options, open }), Arc::default())
            }
            Source::Application(pool) => Connections::Application(pool),
        };
        let change = |file: &str| {
            #[cfg(feature = "mutants")]
            if let Some(mutant) = options.mutant {
                return super::mutant::broken(mutant, file);
            }
            file.to_owned()
        };
        let this = Self {
            connections,
            statements: Statements::new(&options.table, change),
            calm: Remembered::default(),
        };
        this.prepare(&options.table, options.schema).await?;
        Ok(this)
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        if self.calm.get(&ticket.name).is_some()
            && let Some(token) = self.acquire_again(ticket).await?
        {
            return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
        }
        let acquire = &self.statements.acquire;
        let values = attempt(ticket, now());
        let rows = self.run("attempt", acquire, values).await?;
        let Some(row) = rows.first() else {
            self.calm.forget(&ticket.name);
            return self.held(&ticket.name).await;
        };
        let token = row.try_get(0).ok().and_then(row::token);
        let token = token.ok_or_else(|| ERRORS.unreadable("attempt"))?;
        self.calm.set(&ticket.name, ());
        Ok(Attempt::Granted(Grant::new(token, ticket.ttl)))
    }

    async fn watch(&self, _ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        let text = "a file wakes nobody: its waiters poll";
        Err(ERRORS.fault("watch", Problem::Refused, Outcome::Rejected, text))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        self.renew_all(tickets).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let values = [Value::name(&ticket.name), Value::holder(ticket)];
        let release = &self.statements.release;
        if self.ask("release", release, values.clone()).await?.changed > 0 {
            return Ok(Release::Released);
        }
        let late = &self.statements.release_late;
        self.run("release", late, values).await?;
        Ok(Release::NotHeld)
    }

    async fn look(&self, which: Which<'_>) -> Result<Vec<LockState>, BackendError> {
        let values = match which {
            Which::Name(name) => [Value::name(name), Value::Nothing],
            Which::Prefix(prefix) => [Value::Nothing, Value::Bytes(prefix.as_bytes().to_vec())],
        };
        let rows = self.run("inspect", &self.statements.look, values).await?;
        let rows: Result<Vec<Row>, _> = rows.iter().map(read).collect();
        let rows = rows.map_err(|_| ERRORS.unreadable("inspect"))?;
        Ok(rows.iter().filter_map(Row::state).collect())
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let key = Value::name(name);
        let rows = self
            .run(
                "break",
                &self.statements.look,
                [key.clone(), Value::Nothing],
            )
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let row = read(row).map_err(|_| ERRORS.unreadable("break"))?;
        let Some(holder) = row.holder.as_deref() else {
            return Ok(None);
        };
        let values = [key, Value::Text(holder.to_owned())];
        // What was seen has ended by itself if nothing is there to be ended.
        self.run("break", &self.statements.break_lock, values)
            .await?;
        Ok(row.state())
    }

    async fn purge(&self, unused_for: Duration) -> Result<u64, BackendError> {
        let values = [Value::Number(micros(unused_for))];
        let rows = self.run("purge", &self.statements.purge, values).await?;
        Ok(rows.len() as u64)
    }

    fn counts(&self) -> Counts {
        Counts::default()
    }
}
