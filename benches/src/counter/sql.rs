//! A row: `SERIALIZABLE` with retries, or locked when it is read.

use async_trait::async_trait;
use lockkit::sql::ReleaseIn;
use lockkit::{Guard, Lock};
use sqlx::{
    ColumnIndex, Connection, Database, Decode, Encode, Executor, IntoArguments, Pool, Row,
    Transaction, Type,
};

use super::{Control, Counter, Update};
use crate::failure::Outcome;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS lockkit_bench_value
    (name VARCHAR(500) PRIMARY KEY, value BIGINT NOT NULL)";

/// The statements of a database, each with the name as its last argument.
pub(crate) trait Dialect: Rows {
    const CONTROLS: &'static [Control];
    const BEGIN: &'static str;
    /// Makes the row, or sets it to 0.
    const RESET: &'static str;
    const READ: &'static str;
    /// Reads and locks the row.
    const LOCK: &'static str;
    /// The value is its first argument.
    const WRITE: &'static str;
}

/// Sends a statement; of any database whose driver knows these types.
pub(crate) trait Rows: Database {
    /// Returns the first number, if there is one.
    fn run(
        connection: &mut Self::Connection,
        statement: &'static str,
        value: Option<i64>,
        name: Option<&str>,
    ) -> impl Future<Output = sqlx::Result<Option<i64>>> + Send;
}

impl<D> Rows for D
where
    D: Database<Arguments: IntoArguments<D>>,
    for<'c> &'c mut D::Connection: Executor<'c, Database = D>,
    for<'a> i64: Encode<'a, D> + Decode<'a, D> + Type<D>,
    for<'a> String: Encode<'a, D> + Type<D>,
    usize: ColumnIndex<D::Row>,
{
    async fn run(
        connection: &mut D::Connection,
        statement: &'static str,
        value: Option<i64>,
        name: Option<&str>,
    ) -> sqlx::Result<Option<i64>> {
        let mut query = sqlx::query(statement);
        if let Some(value) = value {
            query = query.bind(value);
        }
        if let Some(name) = name {
            query = query.bind(name.to_owned());
        }
        let row = query.fetch_optional(connection).await?;
        row.map(|row| row.try_get(0)).transpose()
    }
}

pub(crate) struct Value<D: Dialect> {
    pool: Pool<D>,
    name: String,
}

impl<D: Dialect> Value<D> {
    pub(crate) fn new(pool: &Pool<D>, name: &str) -> Self {
        Self {
            pool: pool.clone(),
            name: name.to_owned(),
        }
    }
}

#[async_trait]
impl<D: Dialect> Counter for Value<D>
where
    Guard: ReleaseIn<D>,
{
    fn controls(&self) -> &'static [Control] {
        D::CONTROLS
    }

    fn has_room(&self) -> bool {
        false
    }

    async fn create(&self) -> Outcome {
        let mut connection = self.pool.acquire().await?;
        D::run(&mut connection, TABLE, None, None).await?;
        D::run(&mut connection, D::RESET, None, Some(&self.name)).await?;
        Ok(())
    }

    async fn read(&self) -> Outcome<u64> {
        let mut connection = self.pool.acquire().await?;
        let value = D::run(&mut connection, D::READ, None, Some(&self.name)).await?;
        Ok(u64::try_from(value.unwrap_or(0))?)
    }

    fn section(&self, lock: Lock) -> Box<dyn Update> {
        Box::new(InSection {
            lock,
            pool: self.pool.clone(),
            name: self.name.clone(),
        })
    }

    async fn bare(&self, control: Control) -> Outcome<Box<dyn Update>> {
        let options = self.pool.connect_options();
        Ok(Box::new(Bare::<D> {
            connection: D::Connection::connect_with(&options).await?,
            control,
            name: self.name.clone(),
        }))
    }
}

/// Reads and writes the row in a transaction that has begun.
async fn increase<D: Dialect>(
    transaction: &mut Transaction<'_, D>,
    read: &'static str,
    name: &str,
) -> sqlx::Result<()> {
    let value = D::run(&mut **transaction, read, None, Some(name)).await?;
    let value = value.ok_or(sqlx::Error::RowNotFound)? + 1;
    D::run(&mut **transaction, D::WRITE, Some(value), Some(name)).await?;
    Ok(())
}

struct InSection<D: Dialect> {
    lock: Lock,
    pool: Pool<D>,
    name: String,
}

#[async_trait]
impl<D: Dialect> Update for InSection<D>
where
    Guard: ReleaseIn<D>,
{
    async fn attempt(&mut self) -> Outcome<bool> {
        let guard = self.lock.acquire().await?;
        let mut transaction = self.pool.begin_with(D::BEGIN).await?;
        increase(&mut transaction, D::READ, &self.name).await?;
        let released = guard.release_in(&mut transaction).await?;
        transaction.commit().await?;
        released.committed();
        Ok(true)
    }
}

struct Bare<D: Dialect> {
    connection: D::Connection,
    control: Control,
    name: String,
}

#[async_trait]
impl<D: Dialect> Update for Bare<D> {
    async fn attempt(&mut self) -> Outcome<bool> {
        let (begin, read) = match self.control {
            Control::Optimistic => ("BEGIN ISOLATION LEVEL SERIALIZABLE", D::READ),
            Control::Pessimistic => (D::BEGIN, D::LOCK),
        };
        let mut transaction = self.connection.begin_with(begin).await?;
        let done = match increase(&mut transaction, read, &self.name).await {
            Ok(()) => transaction.commit().await,
            Err(error) => transaction.rollback().await.and(Err(error)),
        };
        match done {
            Ok(()) => Ok(true),
            // Another transaction was faster.
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("40001") => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
}
