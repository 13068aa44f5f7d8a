//! A row for cycles and holds, `GET_LOCK` for turns.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use lockkit::url::StoreUrl;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPoolOptions, MySqlSslMode};
use sqlx::{Connection, MySql, MySqlPool, QueryBuilder, Row};

use super::{Bare, Contender, Fact, UNKNOWN, Words};
use crate::built_in;
use crate::counter::{Control, Counter, sql};
use crate::failure::{Failure, Outcome};
use crate::turns::Taken;

/// As many rows in one statement.
const CHUNK: usize = 500;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS lockkit_bench
    (name VARBINARY(512) PRIMARY KEY, ends DATETIME(6) NOT NULL)";

#[derive(Debug)]
pub(super) struct Database {
    server: MySqlConnectOptions,
    pool: MySqlPool,
}

impl Database {
    pub(super) async fn open(url: &StoreUrl) -> Outcome<Self> {
        let host = url.hosts().first();
        let host = host.ok_or_else(|| Failure::new("no server is named"))?;
        let mut server = MySqlConnectOptions::new()
            .host(host.name())
            .port(host.port().unwrap_or(3306))
            .ssl_mode(MySqlSslMode::Preferred)
            .database(url.path().trim_matches('/'));
        if let Some(user) = url.user() {
            server = server.username(user);
        }
        if let Some(password) = url.password() {
            server = server.password(password);
        }
        // No look at a connection before each use: that would be another round trip.
        let pool = MySqlPoolOptions::new()
            .max_connections(10)
            .test_before_acquire(false);
        let pool = pool.connect_with(server.clone()).await?;
        sqlx::query(TABLE).execute(&pool).await?;
        Ok(Self { server, pool })
    }

    async fn own(&self) -> Outcome<MySqlConnection> {
        Ok(MySqlConnection::connect_with(&self.server).await?)
    }
}

async fn lock(connection: &mut MySqlConnection, name: &str) -> Outcome {
    let lock = sqlx::query("SELECT GET_LOCK(?, 600)").bind(name);
    let taken: Option<i64> = lock.fetch_one(connection).await?.try_get(0)?;
    match taken {
        Some(1) => Ok(()),
        _ => Err(Failure::new("GET_LOCK was given up")),
    }
}

async fn unlock(connection: &mut MySqlConnection, name: &str) -> Outcome {
    let unlock = sqlx::query("DO RELEASE_LOCK(?)").bind(name);
    unlock.execute(connection).await?;
    Ok(())
}

#[async_trait]
impl Bare for Database {
    fn words(&self) -> Words {
        Words {
            cycle: "INSERT + DELETE of a row",
            turn: "GET_LOCK + RELEASE_LOCK, a connection each",
            recovery: "GET_LOCK ends with its connection",
            hold: "a row, UPDATE of 500 in one statement",
        }
    }

    async fn facts(&self) -> Outcome<Vec<Fact>> {
        let mut facts = vec![built_in::SQLX.as_client()];
        let questions = [
            ("server", "SELECT CONCAT(@@version_comment, ' ', VERSION())"),
            (
                "innodb_flush_log_at_trx_commit",
                "SELECT CAST(@@innodb_flush_log_at_trx_commit AS CHAR)",
            ),
            ("sync_binlog", "SELECT CAST(@@sync_binlog AS CHAR)"),
            ("log_bin", "SELECT CAST(@@log_bin AS CHAR)"),
        ];
        for (name, question) in questions {
            let asked = sqlx::query(question).fetch_one(&self.pool).await;
            let value = asked.ok().and_then(|row| row.try_get::<String, _>(0).ok());
            facts.push((name.to_owned(), value.unwrap_or_else(|| UNKNOWN.into())));
        }
        Ok(facts)
    }

    async fn cycle(&self, name: &str) -> Outcome {
        let insert = "INSERT INTO lockkit_bench VALUES (?, NOW(6) + INTERVAL 30 SECOND)";
        sqlx::query(insert).bind(name).execute(&self.pool).await?;
        let delete = "DELETE FROM lockkit_bench WHERE name = ?";
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
        let microseconds = u64::try_from(ttl.as_micros())?;
        for names in names.chunks(CHUNK) {
            let mut insert = QueryBuilder::<MySql>::new("INSERT INTO lockkit_bench ");
            insert.push_values(names, |mut row, name| {
                row.push_bind(name.clone());
                row.push("NOW(6) + INTERVAL ")
                    .push_bind_unseparated(microseconds);
                row.push_unseparated(" MICROSECOND");
            });
            insert.build().execute(&self.pool).await?;
        }
        Ok(Vec::new())
    }

    async fn keep_all(&self, names: &[String], ttl: Duration) -> Outcome {
        let microseconds = u64::try_from(ttl.as_micros())?;
        for names in names.chunks(CHUNK) {
            let start = "UPDATE lockkit_bench SET ends = NOW(6) + INTERVAL ";
            let mut update = QueryBuilder::<MySql>::new(start);
            update
                .push_bind(microseconds)
                .push(" MICROSECOND WHERE name IN (");
            let mut list = update.separated(", ");
            for name in names {
                list.push_bind(name.clone());
            }
            update.push(")");
            update.build().execute(&self.pool).await?;
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
        let delete = "DELETE FROM lockkit_locks WHERE LEFT(name, LENGTH(?)) = ?";
        match sqlx::query(delete)
            .bind(prefix)
            .bind(prefix)
            .execute(&self.pool)
            .await
        {
            // The URL may name another table; its rows are few and small.
            Err(sqlx::Error::Database(_)) => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }
}

struct Turn {
    connection: MySqlConnection,
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

impl sql::Dialect for MySql {
    const CONTROLS: &'static [Control] = &[Control::Pessimistic];
    const BEGIN: &'static str = "BEGIN";
    const RESET: &'static str = "REPLACE INTO lockkit_bench_value VALUES (?, 0)";
    const READ: &'static str = "SELECT value FROM lockkit_bench_value WHERE name = ?";
    const LOCK: &'static str = "SELECT value FROM lockkit_bench_value WHERE name = ? FOR UPDATE";
    const WRITE: &'static str = "UPDATE lockkit_bench_value SET value = ? WHERE name = ?";
}
