//! The store in a file of SQLite, of its own for each case.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName};
use lockkit_sql::{SqlStoreBuilder, Sqlite};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::failure::Outcome;
use crate::namespace::{Hook, Namespace};
use crate::setup::Setup;
use crate::setups::pauses::{pauses, poll_option};
use crate::storage::Storage;

/// Opens a store in a temporary file for each case.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SqliteSetup;

impl SqliteSetup {
    /// The store, with places in its queue that outlast a short stop of the whole process: `sqlite`.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

#[async_trait]
impl Setup for SqliteSetup {
    fn name(&self) -> &str {
        "sqlite"
    }

    fn capabilities(&self) -> Capabilities {
        builder("locks.db").capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        &[Hook::Url, Hook::Wipe, Hook::Residue]
    }

    async fn namespace(&self, _alone: bool) -> Outcome<Box<dyn Namespace>> {
        Ok(Box::new(SqliteNamespace {
            dir: Storage::Memory.directory()?,
        }))
    }
}

fn builder(file: &str) -> SqlStoreBuilder<Sqlite> {
    SqlStoreBuilder::<Sqlite>::file(file).poll(pauses())
}

#[derive(Debug)]
struct SqliteNamespace {
    dir: TempDir,
}

impl SqliteNamespace {
    fn file(&self) -> String {
        self.dir.path().join("locks.db").display().to_string()
    }

    /// A connection that shares nothing with the store under test.
    async fn connect(&self) -> Outcome<SqliteConnection> {
        let options = SqliteConnectOptions::new().filename(self.file());
        Ok(SqliteConnection::connect_with(&options).await?)
    }
}

#[async_trait]
impl Namespace for SqliteNamespace {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        Ok(Arc::new(builder(&self.file()).connect().await?))
    }

    fn url(&self) -> Option<String> {
        Some(format!("sqlite:{}?{}", self.file(), poll_option()))
    }

    async fn wipe(&self) -> Outcome {
        let mut connection = self.connect().await?;
        sqlx::query("DELETE FROM lockkit_locks")
            .execute(&mut connection)
            .await?;
        // SQLite's clock counts milliseconds: tokens grow over the loss of all rows from the next one on.
        sleep(Duration::from_millis(2)).await;
        Ok(())
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let mut connection = self.connect().await?;
        let held: Vec<String> = sqlx::query_scalar(
            "SELECT holder FROM lockkit_locks WHERE name = ?1 AND holder IS NOT NULL \
             UNION ALL SELECT holder FROM lockkit_locks_holds WHERE name = ?1",
        )
        .bind(name.as_str().as_bytes())
        .fetch_all(&mut connection)
        .await?;
        Ok(held
            .into_iter()
            .map(|holder| format!("a hold of {holder}"))
            .collect())
    }
}
