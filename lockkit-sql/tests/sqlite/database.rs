//! A file of locks that no other test sees.

use std::time::Duration;

use lockkit_core::contract::Ticket;
use lockkit_core::{ClientId, HolderId, Lease, LockClient, LockName};
use lockkit_sql::{Problem, SqlFault, SqlStoreBuilder, Sqlite, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Connection as _, SqliteConnection, SqlitePool};
use tempfile::TempDir;

pub(crate) struct Database {
    dir: TempDir,
}

impl Database {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn file(&self) -> String {
        self.dir.path().join("locks.db").display().to_string()
    }

    pub(crate) fn builder(&self) -> SqlStoreBuilder<Sqlite> {
        SqlStoreBuilder::<Sqlite>::file(self.file())
    }

    pub(crate) async fn store(&self) -> SqliteStore {
        self.builder().connect().await.unwrap()
    }

    pub(crate) async fn client(&self) -> LockClient {
        LockClient::new(self.store().await).unwrap()
    }

    fn options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(self.file())
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(5))
    }

    /// A connection of an application that knows nothing of locks.
    pub(crate) async fn connection(&self) -> SqliteConnection {
        SqliteConnection::connect_with(&self.options())
            .await
            .unwrap()
    }

    /// The pool of such an application.
    pub(crate) async fn pool(&self) -> SqlitePool {
        let pool = SqlitePoolOptions::new().max_connections(4);
        pool.connect_with(self.options()).await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &'static str) {
        let mut connection = self.connection().await;
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    }
}

pub(crate) fn ticket(name: &str, ttl: Duration) -> Ticket {
    let holder = HolderId::new(ClientId::random(), 1);
    Ticket::new(LockName::new(name).unwrap(), holder, ttl)
}

pub(crate) fn fixed(millis: u64) -> Lease {
    Lease::fixed(Duration::from_millis(millis))
}

/// What is wrong, as a program sees it.
pub(crate) fn problem(error: &lockkit_core::BackendError) -> Problem {
    let source = std::error::Error::source(error).unwrap();
    source.downcast_ref::<SqlFault>().unwrap().problem()
}
