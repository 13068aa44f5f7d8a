//! Sections in PostgreSQL and MySQL: transactions that release the lock.

use async_trait::async_trait;
use lockkit_core::{Guard, Lock};
use lockkit_sql::ReleaseIn;
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Database, MySql, Pool, Postgres, Transaction};

use super::{Entered, Sections, Written};
use crate::checker::{Entry, StoredSections};
use crate::failure::{Failure, Outcome};

/// A database whose driver returns rows of two texts.
pub(super) trait Rows: Database {
    fn rows(
        connection: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = sqlx::Result<Vec<(String, String)>>> + Send;
}

impl Rows for Postgres {
    async fn rows(
        connection: &mut PgConnection,
        sql: String,
    ) -> sqlx::Result<Vec<(String, String)>> {
        let query = sqlx::query_as(AssertSqlSafe(sql));
        query.fetch_all(connection).await
    }
}

impl Rows for MySql {
    async fn rows(
        connection: &mut MySqlConnection,
        sql: String,
    ) -> sqlx::Result<Vec<(String, String)>> {
        let query = sqlx::query_as(AssertSqlSafe(sql));
        query.fetch_all(connection).await
    }
}

const LAST: &str =
    "select a.v, b.v from section_values a, section_values b where a.k = 1 and b.k = 2";

/// A table with both values, and one of entries.
pub(super) struct Sql<D: Rows> {
    lock: Lock,
    pool: Pool<D>,
}

impl<D: Rows> Sql<D> {
    pub(super) fn new(url: &str, lock: Lock) -> Outcome<Self> {
        // The options are those of the lock.
        let url = url.split('?').next().unwrap_or_default();
        let pool = Pool::connect_lazy(url)?;
        Ok(Self { lock, pool })
    }
}

async fn values<D: Rows>(connection: &mut D::Connection) -> Outcome<[String; 2]> {
    let rows = D::rows(connection, LAST.to_owned()).await?;
    let row = rows.into_iter().next();
    let (one, two) = row.ok_or_else(|| Failure::new("there are no values"))?;
    Ok([one, two])
}

#[async_trait]
impl<D: Rows> Sections for Sql<D>
where
    Guard: ReleaseIn<D>,
{
    async fn prepare(&self) -> Outcome {
        let mut connection = self.pool.acquire().await?;
        let start = Entry::START;
        for sql in [
            "create table section_values (k int primary key, v varchar(80) not null)".to_owned(),
            format!("insert into section_values values (1, '{start}'), (2, '{start}')"),
            "create table section_log (value varchar(80), entry varchar(300))".to_owned(),
        ] {
            D::rows(&mut connection, sql).await?;
        }
        Ok(())
    }

    async fn enter(&self) -> Outcome<(Box<dyn Entered>, [String; 2])> {
        let guard = self.lock.acquire().await?;
        let mut transaction = self.pool.begin().await?;
        let read = values::<D>(&mut transaction).await?;
        Ok((Box::new(Holding { guard, transaction }), read))
    }

    async fn stored(&self) -> Outcome<StoredSections> {
        let guard = self.lock.acquire().await?;
        let mut connection = self.pool.acquire().await?;
        let last = values::<D>(&mut connection).await?;
        let all = "select value, entry from section_log".to_owned();
        let mut entries = Vec::new();
        for (_, text) in D::rows(&mut connection, all).await? {
            entries.push(text.parse()?);
        }
        guard.release().await?;
        Ok(StoredSections { entries, last })
    }
}

struct Holding<D: Rows> {
    guard: Guard,
    transaction: Transaction<'static, D>,
}

#[async_trait]
impl<D: Rows> Entered for Holding<D>
where
    Guard: ReleaseIn<D>,
{
    fn token(&self) -> u64 {
        self.guard.token().get()
    }

    async fn commit(self: Box<Self>, entry: &Entry) -> Written {
        let mut transaction = self.transaction;
        let value = &entry.value;
        for sql in [
            format!("update section_values set v = '{value}'"),
            format!("insert into section_log values ('{value}', '{entry}')"),
        ] {
            if let Err(error) = D::rows(&mut transaction, sql).await {
                return Written::No(error.to_string());
            }
        }
        match self.guard.release_in(&mut transaction).await {
            Err(error) => Written::No(error.to_string()),
            Ok(released) if transaction.commit().await.is_ok() => {
                released.committed();
                Written::Yes
            }
            Ok(_) => Written::Unknown,
        }
    }
}
