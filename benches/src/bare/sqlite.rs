//! A row, inserted and deleted.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use lockkit::url::StoreUrl;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{QueryBuilder, Row, Sqlite, SqlitePool};

use super::{Bare, Contender, Fact, Words, poll};
use crate::built_in;
use crate::counter::{Control, Counter, sql};
use crate::failure::{Failure, Outcome};
use crate::turns::Taken;

/// As many rows in one statement.
const CHUNK: usize = 500;

#[derive(Debug)]
pub(super) struct File {
    pool: SqlitePool,
}

impl File {
    /// With the settings of the lock store, on the same file.
    pub(super) async fn open(url: &StoreUrl) -> Outcome<Self> {
        let mut options = url.options.clone();
        let sync = match options.text("sync").as_deref() {
            Some("full") => SqliteSynchronous::Full,
            _ => SqliteSynchronous::Normal,
        };
        let file = SqliteConnectOptions::new()
            .filename(url.path())
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(sync)
            .busy_timeout(Duration::from_secs(10));
        // Only one can write at a time.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .test_before_acquire(false);
        let pool = pool.connect_with(file).await?;
        sqlx::query(
            "CREATE TABLE IF NOT EXISTS lockkit_bench (name TEXT PRIMARY KEY, ends REAL NOT NULL)",
        )
        .execute(&pool)
        .await?;
        Ok(Self { pool })
    }

    async fn asked(&self, question: &'static str) -> Outcome<String> {
        let row = sqlx::query(question).fetch_one(&self.pool).await?;
        let text = row.try_get::<String, _>(0);
        Ok(text.or_else(|_| row.try_get::<i64, _>(0).map(|number| number.to_string()))?)
    }

    /// Whether it was free and is taken now.
    async fn tried(&self, name: &str, ttl: Duration) -> Outcome<bool> {
        let done = sqlx::query(
            "INSERT INTO lockkit_bench VALUES (?1, julianday('now') * 86400 + ?2)
             ON CONFLICT DO UPDATE SET ends = excluded.ends WHERE ends <= julianday('now') * 86400",
        )
        .bind(name)
        .bind(ttl.as_secs_f64())
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    async fn freed(&self, name: &str) -> Outcome {
        let delete = sqlx::query("DELETE FROM lockkit_bench WHERE name = ?1");
        delete.bind(name).execute(&self.pool).await?;
        Ok(())
    }
}

#[async_trait]
impl Bare for File {
    fn words(&self) -> Words {
        Words {
            cycle: "INSERT + DELETE of a row",
            turn: "INSERT, tried every millisecond, + DELETE",
            recovery: "a row that ends; INSERT every millisecond",
            hold: "a row, UPDATE of 500 in one statement",
        }
    }

    async fn facts(&self) -> Outcome<Vec<Fact>> {
        let version = self.asked("SELECT sqlite_version()").await?;
        let library = ("library".to_owned(), format!("SQLite {version}"));
        let mut facts = vec![library, built_in::SQLX.as_client()];
        let questions = [
            ("journal_mode", "PRAGMA journal_mode"),
            ("synchronous", "PRAGMA synchronous"),
        ];
        for (name, question) in questions {
            facts.push((name.to_owned(), self.asked(question).await?));
        }
        Ok(facts)
    }

    async fn cycle(&self, name: &str) -> Outcome {
        self.tried(name, Duration::from_secs(30)).await?;
        self.freed(name).await
    }

    async fn contender(&self, name: &str, _number: usize) -> Outcome<Box<dyn Contender>> {
        let pool = self.pool.clone();
        let name = name.to_owned();
        Ok(Box::new(Turn {
            file: Self { pool },
            name,
        }))
    }

    fn counter(&self, name: &str) -> Option<Box<dyn Counter>> {
        Some(Box::new(sql::Value::new(&self.pool, name)))
    }

    async fn take(&self, name: &str, ttl: Duration) -> Outcome<Box<dyn Any + Send + Sync>> {
        if self.tried(name, ttl).await? {
            return Ok(Box::new(()));
        }
        Err(Failure::new(format!("another program has the row {name}")))
    }

    async fn wait_for(&self, name: &str) -> Outcome {
        poll(|| self.tried(name, Duration::from_secs(1))).await
    }

    async fn take_all(
        &self,
        names: &[String],
        ttl: Duration,
    ) -> Outcome<Vec<Box<dyn Any + Send + Sync>>> {
        for names in names.chunks(CHUNK) {
            let mut insert = QueryBuilder::<Sqlite>::new("INSERT INTO lockkit_bench ");
            insert.push_values(names, |mut row, name| {
                row.push_bind(name.clone());
                row.push("julianday('now') * 86400 + ")
                    .push_bind_unseparated(ttl.as_secs_f64());
            });
            insert.build().execute(&self.pool).await?;
        }
        Ok(Vec::new())
    }

    async fn keep_all(&self, names: &[String], ttl: Duration) -> Outcome {
        for names in names.chunks(CHUNK) {
            let start = "UPDATE lockkit_bench SET ends = julianday('now') * 86400 + ";
            let mut update = QueryBuilder::<Sqlite>::new(start);
            update.push_bind(ttl.as_secs_f64()).push(" WHERE name IN (");
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
        let delete =
            "DELETE FROM lockkit_locks WHERE substr(CAST(name AS TEXT), 1, length(?1)) = ?1";
        match sqlx::query(delete).bind(prefix).execute(&self.pool).await {
            // The URL may name another table; its rows are few and small.
            Err(sqlx::Error::Database(_)) => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }
}

struct Turn {
    file: File,
    name: String,
}

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        poll(|| self.file.tried(&self.name, Duration::from_secs(30))).await?;
        taken.now();
        self.file.freed(&self.name).await
    }
}

impl sql::Dialect for Sqlite {
    const CONTROLS: &'static [Control] = &[Control::Pessimistic];
    const BEGIN: &'static str = "BEGIN IMMEDIATE";
    const RESET: &'static str = "REPLACE INTO lockkit_bench_value VALUES (?, 0)";
    const READ: &'static str = "SELECT value FROM lockkit_bench_value WHERE name = ?";
    // The whole file is locked.
    const LOCK: &'static str = Self::READ;
    const WRITE: &'static str = "UPDATE lockkit_bench_value SET value = ? WHERE name = ?";
}
