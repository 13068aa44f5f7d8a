//! The table: made, checked, named, purged.

use std::time::Duration;

use lockkit_core::contract::DistributedLock as _;
use lockkit_core::url::StoreUrl;
use lockkit_core::{Error, Outcome};
use lockkit_sql::{Problem, Schema, ddl};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use crate::database::{Database, problem, ticket};

const TTL: Duration = Duration::from_secs(30);

/// With `schema=check` a wrong path is an error, and not a new file.
#[tokio::test]
async fn check_creates_no_file() {
    let database = Database::new();
    let missing = database.builder().schema(Schema::Check).connect().await;
    assert_eq!(problem(&missing.unwrap_err()), Problem::Connection);
    assert!(!std::path::Path::new(&database.file()).exists());
}

/// A file of another program, with its table and with that of the locks, is only read.
#[tokio::test]
async fn check_keeps_the_journal_mode() {
    let database = Database::new();
    let mode = async || {
        let plain = SqliteConnectOptions::new().filename(database.file());
        let mut file = SqliteConnection::connect_with(&plain.create_if_missing(true))
            .await
            .unwrap();
        let mode = sqlx::query_scalar("PRAGMA journal_mode");
        let mode: String = mode.fetch_one(&mut file).await.unwrap();
        (mode, file)
    };
    let (_, mut file) = mode().await;
    let shop = sqlx::raw_sql("CREATE TABLE stock (n INTEGER NOT NULL)");
    shop.execute(&mut file).await.unwrap();
    let missing = database.builder().schema(Schema::Check).connect().await;
    assert_eq!(problem(&missing.unwrap_err()), Problem::Schema);
    assert_eq!(mode().await.0, "delete");

    let definition = ddl(&"sqlite:x.db".parse().unwrap()).unwrap();
    let locks = sqlx::raw_sql(sqlx::AssertSqlSafe(definition));
    locks.execute(&mut file).await.unwrap();
    let look = database.builder().schema(Schema::Check);
    let look = look.connect().await.unwrap();
    assert!(look.list("").await.unwrap().is_empty());
    assert_eq!(mode().await.0, "delete");

    drop((look, database.store().await));
    assert_eq!(mode().await.0, "wal");
}

#[tokio::test]
async fn a_missing_table_is_told_from_one_of_others() {
    let database = Database::new();
    let mut connection = database.connection().await;
    let refused = async |table: &str| {
        let check = database.builder().schema(Schema::Check);
        let check = check.table(table.parse().unwrap());
        Error::from(check.connect().await.unwrap_err()).to_string()
    };
    let missing = refused("typo").await;
    assert!(missing.contains("there is no table `typo`"), "{missing}");
    let shop = sqlx::raw_sql("CREATE TABLE stock (n INTEGER NOT NULL)");
    shop.execute(&mut connection).await.unwrap();
    let foreign = refused("stock").await;
    assert!(
        foreign.contains("`stock` is not one of lockkit"),
        "{foreign}"
    );
}

#[tokio::test]
async fn printed_ddl_passes_check() {
    let database = Database::new();
    drop(database.connection().await);
    let missing = database.builder().schema(Schema::Check).connect().await;
    assert_eq!(problem(&missing.unwrap_err()), Problem::Schema);

    let url: StoreUrl = "sqlite:x.db?table=app_locks".parse().unwrap();
    let mut connection = database.connection().await;
    let definition = sqlx::AssertSqlSafe(ddl(&url).unwrap());
    sqlx::raw_sql(definition)
        .execute(&mut connection)
        .await
        .unwrap();
    let builder = database.builder().schema(Schema::Check);
    let store = builder.table("app_locks".parse().unwrap()).connect().await;
    let store = store.unwrap();
    let ticket = ticket("a", TTL);
    store.attempt(&ticket).await.unwrap();
    let held = sqlx::query_scalar("SELECT count(*) FROM app_locks WHERE holder IS NOT NULL");
    let held: i64 = held.fetch_one(&mut connection).await.unwrap();
    assert_eq!(held, 1);
}

#[tokio::test]
async fn refuses_table_with_other_columns() {
    let database = Database::new();
    database
        .run("CREATE TABLE lockkit_locks (name TEXT, token BLOB)")
        .await;
    let error = database.builder().connect().await.unwrap_err();
    assert_eq!(problem(&error), Problem::Schema);
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("`name BLOB`"), "{source}");
    assert!(source.contains("lockkit schema"), "{source}");
}

#[tokio::test]
async fn concurrent_opens_of_a_new_file_succeed() {
    let database = Database::new();
    let runtime = tokio::runtime::Handle::current();
    let mut tasks = Vec::new();
    for n in 0..16 {
        let builder = database.builder();
        tasks.push(runtime.spawn(async move {
            let store = builder.connect().await.unwrap();
            let ticket = ticket(&format!("a{n}"), TTL);
            store.attempt(&ticket).await.unwrap();
            store.release(&ticket).await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn tokens_grow_after_purge() {
    let database = Database::new();
    let store = database.store().await;
    let (old, held) = (ticket("old", TTL), ticket("held", TTL));
    let token = match store.attempt(&old).await.unwrap() {
        lockkit_core::contract::Attempt::Granted(grant) => grant.token,
        other => panic!("{other:?}"),
    };
    store.release(&old).await.unwrap();
    store.attempt(&held).await.unwrap();
    assert_eq!(store.purge(Duration::from_secs(60)).await.unwrap(), 0);
    database
        .run("UPDATE lockkit_locks SET expires_at = expires_at - 8 * 86400000000 WHERE name = x'6f6c64'")
        .await;
    assert_eq!(
        store.purge(Duration::from_secs(7 * 86_400)).await.unwrap(),
        1
    );
    assert!(store.inspect(&held.name).await.unwrap().is_some());
    match store.attempt(&ticket("old", TTL)).await.unwrap() {
        lockkit_core::contract::Attempt::Granted(grant) => assert!(grant.token > token),
        other => panic!("{other:?}"),
    }
}

/// The rows of the first table are gone by then.
#[tokio::test]
async fn purge_that_fails_halfway_may_have_an_effect() {
    let database = Database::new();
    let store = database.store().await;
    let old = ticket("old", TTL);
    store.attempt(&old).await.unwrap();
    store.release(&old).await.unwrap();
    database
        .run("UPDATE lockkit_locks SET expires_at = 1; DROP TABLE lockkit_locks_holds")
        .await;
    let error = store.purge(TTL).await.unwrap_err();
    assert_eq!(problem(&error), Problem::Schema);
    assert_eq!(error.outcome(), Outcome::Indeterminate);
}

/// Of a name that is used again and again, so that no purge deletes them.
#[tokio::test]
async fn rows_that_refuse_late_attempts_go_when_another_is_made() {
    let database = Database::new();
    let store = database.store().await;
    for _ in 0..3 {
        // The store does not know whether it has sent an attempt of this ticket.
        store
            .release(&ticket("a", Duration::from_millis(20)))
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let rows = sqlx::query_scalar("SELECT count(*) FROM lockkit_locks_holds");
    let rows: i64 = rows
        .fetch_one(&mut database.connection().await)
        .await
        .unwrap();
    assert_eq!(rows, 1);
}

/// The clock of a statement counts milliseconds: a row is deleted in a later one than its last grant.
#[tokio::test]
async fn tokens_grow_after_purge_of_fresh_row() {
    let database = Database::new();
    let store = database.store().await;
    let lock = database.client().await.lock("a").unwrap();
    let mut last = None;
    for _ in 0..50 {
        for _ in 0..3 {
            let guard = lock.acquire().await.unwrap();
            let token = Some(guard.token());
            assert!(token > last, "{token:?} after {last:?}");
            last = token;
            guard.release().await.unwrap();
        }
        while store.purge(Duration::ZERO).await.unwrap() == 0 {}
    }
}

/// The store takes its options from the application's pool.
#[tokio::test]
async fn opens_with_the_applications_pool() {
    let database = Database::new();
    let pool = database.pool().await;
    let store = lockkit_sql::SqliteStore::builder(pool.clone())
        .connect()
        .await
        .unwrap();
    let client = lockkit_core::LockClient::new(store).unwrap();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    let other = database.client().await.lock("a").unwrap();
    assert!(other.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    other.acquire().await.unwrap().release().await.unwrap();
}
