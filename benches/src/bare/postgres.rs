//! A row for cycles and holds, an advisory lock for turns.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use lockkit::url::StoreUrl;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{Connection, PgPool, Postgres, Row};

use super::{Bare, Contender, Fact, UNKNOWN, Words};
use crate::built_in;
use crate::counter::{Control, Counter, sql};
use crate::failure::{Failure, Outcome};
use crate::turns::Taken;

/// As many rows in one statement.
const CHUNK: usize = 500;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS lockkit_bench
    (name text PRIMARY KEY, ends timestamptz NOT NULL)";

#[derive(Debug)]
pub(super) struct Database {
    server: PgConnectOptions,
    pool: PgPool,
}

impl Database {
    pub(super) async fn open(url: &StoreUrl) -> Outcome<Self> {
        let server = options(url)?;
        // No look at a connection before each use: that would be another round trip.
        let pool = PgPoolOptions::new()
            .max_connections(10)
            .test_before_acquire(false);
        let pool = pool.connect_with(server.clone()).await?;
        // Workers come at the same time, and two who make a table at once fail.
        let mut connection = pool.acquire().await?;
        lock(&mut connection, TABLE).await?;
        let made = sqlx::query(TABLE).execute(&mut *connection).await;
        unlock(&mut connection, TABLE).await?;
        made?;
        drop(connection);
        Ok(Self { server, pool })
    }

    async fn own(&self) -> Outcome<PgConnection> {
        Ok(PgConnection::connect_with(&self.server).await?)
    }
}

/// The server and the database that a URL names.
pub(crate) fn options(url: &StoreUrl) -> Outcome<PgConnectOptions> {
    let host = url.hosts().first();
    let host = host.ok_or_else(|| Failure::new("no server is named"))?;
    let mut server = PgConnectOptions::new_without_pgpass()
        .host(host.name())
        .port(host.port().unwrap_or(5432));
    if let Some(user) = url.user() {
        server = server.username(user);
    }
    if let Some(password) = url.password() {
        server = server.password(password);
    }
    let database = url.path().trim_matches('/');
    if !database.is_empty() {
        server = server.database(database);
    }
    Ok(server)
}

async fn lock(connection: &mut PgConnection, name: &str) -> Outcome {
    let lock = sqlx::query("SELECT pg_advisory_lock(hashtextextended($1, 0))");
    lock.bind(name).execute(connection).await?;
    Ok(())
}

async fn unlock(connection: &mut PgConnection, name: &str) -> Outcome {
    let unlock = sqlx::query("SELECT pg_advisory_unlock(hashtextextended($1, 0))");
    unlock.bind(name).execute(connection).await?;
    Ok(())
}

#[async_trait]
impl Bare for Database {
    fn words(&self) -> Words {
        Words {
            cycle: "INSERT + DELETE of a row",
            turn: "pg_advisory_lock + pg_advisory_unlock, a connection each",
            recovery: "pg_advisory_lock ends with its connection",
            hold: "a row, UPDATE of 500 in one statement",
        }
    }

    async fn facts(&self) -> Outcome<Vec<Fact>> {
        let mut facts = vec![built_in::SQLX.as_client()];
        for name in [
            "server_version",
            "fsync",
            "synchronous_commit",
            "wal_level",
            "max_connections",
        ] {
            let asked = sqlx::query("SELECT current_setting($1, true)").bind(name);
            let row = asked.fetch_one(&self.pool).await?;
            let value: Option<String> = row.try_get(0)?;
            let value = value.unwrap_or_else(|| UNKNOWN.into());
            facts.push(match name {
                "server_version" => ("server".to_owned(), format!("PostgreSQL {value}")),
                _ => (name.to_owned(), value),
            });
        }
        Ok(facts)
    }

    async fn cycle(&self, name: &str) -> Outcome {
        let insert = "INSERT INTO lockkit_bench VALUES ($1, now() + interval '30 s')";
        sqlx::query(insert).bind(name).execute(&self.pool).await?;
        let delete = "DELETE FROM lockkit_bench WHERE name = $1";
        sqlx::query(delete).bind(name).execute(&self.pool).await?;
        Ok(())
    }

    async fn contender(&self, name: &str, _number: usize) -> Outcome<Box<dyn Contender>> {
        let (connection, name) = (self.own().await?, name.to_owned());
        Ok(Box::new(Turn { connection, name }))
    }

    fn counter(&self, name: &str) -> Option<Box<dyn Counter>> {
        Some(Box::new(sql::Value::new(&self.pool, name)))
    }

    async fn take(&self, name: &str, _ttl: Duration) -> Outcome<Box<dyn Any + Send + Sync>> {
        let mut connection = self.own().await?;
        lock(&mut connection, name).await?;
        Ok(Box::new(connection))
    }

    async fn wait_for(&self, name: &str) -> Outcome {
        lock(&mut self.own().await?, name).await
    }

    async fn take_all(
        &self,
        names: &[String],
        ttl: Duration,
    ) -> Outcome<Vec<Box<dyn Any + Send + Sync>>> {
        let insert = "INSERT INTO lockkit_bench
            SELECT name, now() + make_interval(secs => $2) FROM unnest($1::text[]) AS name";
        for names in names.chunks(CHUNK) {
            let insert = sqlx::query(insert).bind(names).bind(ttl.as_secs_f64());
            insert.execute(&self.pool).await?;
        }
        Ok(Vec::new())
    }

    async fn keep_all(&self, names: &[String], ttl: Duration) -> Outcome {
        let update = "UPDATE lockkit_bench SET ends = now() + make_interval(secs => $2)
            WHERE name = ANY($1)";
        for names in names.chunks(CHUNK) {
            let update = sqlx::query(update).bind(names).bind(ttl.as_secs_f64());
            update.execute(&self.pool).await?;
        }
        Ok(())
    }

    async fn sweep(&self, prefix: &str) -> Outcome {
        for drop in [
            "DROP TABLE IF EXISTS lockkit_bench",
            "DROP TABLE IF EXISTS lockkit_bench_value",
        ] {
            sqlx::query(drop).execute(&self.pool).await?;
        }
        let delete = "DELETE FROM lockkit_locks WHERE starts_with(convert_from(name, 'UTF8'), $1)";
        match sqlx::query(delete).bind(prefix).execute(&self.pool).await {
            // The URL may name another table; its rows are few and small.
            Err(sqlx::Error::Database(_)) => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }
}

struct Turn {
    connection: PgConnection,
    name: String,
}

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        lock(&mut self.connection, &self.name).await?;
        taken.now();
        unlock(&mut self.connection, &self.name).await
    }
}

impl sql::Dialect for Postgres {
    const CONTROLS: &'static [Control] = &[Control::Optimistic, Control::Pessimistic];
    const BEGIN: &'static str = "BEGIN";
    const RESET: &'static str = "INSERT INTO lockkit_bench_value VALUES ($1, 0)
        ON CONFLICT (name) DO UPDATE SET value = 0";
    const READ: &'static str = "SELECT value FROM lockkit_bench_value WHERE name = $1";
    const LOCK: &'static str = "SELECT value FROM lockkit_bench_value WHERE name = $1 FOR UPDATE";
    const WRITE: &'static str = "UPDATE lockkit_bench_value SET value = $1 WHERE name = $2";
}
