//! The steps of the contract.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lockkit_core::backend::{Attempt, Grant, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, FencingToken, LockName, Outcome};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::error::ERRORS;
use super::open::{Answer, OpenFile, Value};
use super::{SPELLING, Statements, TABLE};
use crate::backend::Counts;
use crate::config::Options;
use crate::dialect::{Source, Steps, Which};
use crate::error::Problem;
use crate::remembered::Remembered;
use crate::row::{self, Row};
use crate::schema::{Schema, definition, misfit};
use crate::statement::micros;
use crate::table::Table;

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
    file: OpenFile,
    statements: Statements,
    /// Names whose lock was given to this client the last time that it asked.
    calm: Remembered<()>,
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

    /// Carries out one statement to its end: its transaction ends only there.
    async fn ask(
        &self,
        operation: &'static str,
        statement: &Arc<str>,
        values: impl Into<Vec<Value>>,
    ) -> Result<Answer, BackendError> {
        let (statement, values) = (Arc::clone(statement), values.into());
        self.file.request(operation, statement, values).await
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
        let left = left.map_or(0, |left| u64::try_from(left).unwrap_or(0));
        Ok(Attempt::held_for(Some(Duration::from_micros(left))))
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
        let file = OpenFile::new(source, &options);
        file.refuse_network()?;
        let change = |file: &str| {
            #[cfg(feature = "mutants")]
            if let Some(mutant) = options.mutant {
                return super::mutant::broken(mutant, file);
            }
            file.to_owned()
        };
        let this = Self {
            file,
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
