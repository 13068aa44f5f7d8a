//! A full disk, a read-only file, a writer that does not end.

use std::time::Duration;

use lockkit_core::Outcome;
use lockkit_core::contract::{Attempt, DistributedLock as _, Release, Renewal};
use lockkit_sql::{Problem, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};

use crate::database::{Database, problem, ticket};

const TTL: Duration = Duration::from_secs(30);

/// A limit on pages gives the error of a full disk.
#[tokio::test]
async fn full_disk_grants_nothing() {
    let database = Database::new();
    drop(database.store().await);
    let full = SqliteConnectOptions::new()
        .filename(database.file())
        .journal_mode(SqliteJournalMode::Wal)
        .pragma("max_page_count", "1");
    let full = SqliteStore::builder(full).connect().await.unwrap();
    let mut granted = Vec::new();
    let error = loop {
        let ticket = ticket(&"n".repeat(500 - granted.len()), TTL);
        match full.attempt(&ticket).await {
            Ok(Attempt::Granted(_)) => granted.push(ticket),
            Ok(other) => panic!("{other:?}"),
            Err(error) => break (ticket, error),
        }
        assert!(granted.len() < 100, "the disk is not full");
    };
    let (refused, error) = error;
    assert_eq!(problem(&error), Problem::Limit);
    assert_eq!(error.outcome(), Outcome::Unavailable);

    let well = database.store().await;
    assert!(well.inspect(&refused.name).await.unwrap().is_none());
    assert!(matches!(
        well.attempt(&refused).await.unwrap(),
        Attempt::Granted(_)
    ));
    // A full disk does not stop releases.
    for ticket in &granted {
        assert_eq!(full.release(ticket).await.unwrap(), Release::Released);
    }
}

/// No session of a file would prove that a client is alive.
#[tokio::test]
async fn pin_is_refused() {
    let database = Database::new();
    let error = database.builder().pin(true).connect().await.unwrap_err();
    assert_eq!(problem(&error), Problem::Refused);
    assert_eq!(error.outcome(), Outcome::Rejected);
    assert!(!std::path::Path::new(&database.file()).exists());
}

#[tokio::test]
async fn read_only_file_is_reported() {
    let database = Database::new();
    drop(database.store().await);
    let read_only = SqliteConnectOptions::new()
        .filename(database.file())
        .read_only(true);
    let store = SqliteStore::builder(read_only).connect().await.unwrap();
    let error = store.attempt(&ticket("a", TTL)).await.unwrap_err();
    assert_eq!(problem(&error), Problem::ReadOnly);
    assert_eq!(error.outcome(), Outcome::Rejected);
}

#[tokio::test]
async fn refuses_file_that_is_no_database() {
    let database = Database::new();
    std::fs::write(
        database.file(),
        "this is a text and not a database\n".repeat(99),
    )
    .unwrap();
    let error = database.builder().connect().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Rejected);
}

/// A writer that keeps the file for longer than `busy_timeout`.
#[tokio::test]
async fn busy_file_is_unavailable() {
    let database = Database::new();
    let store = database.store().await;
    let mut writer = database.connection().await;
    sqlx::raw_sql("BEGIN IMMEDIATE")
        .execute(&mut writer)
        .await
        .unwrap();
    let waiting = ticket("a", TTL);
    let error = store.attempt(&waiting).await.unwrap_err();
    assert_eq!(problem(&error), Problem::Busy);
    assert_eq!(error.outcome(), Outcome::Unavailable);
    sqlx::raw_sql("COMMIT").execute(&mut writer).await.unwrap();
    assert!(matches!(
        store.attempt(&waiting).await.unwrap(),
        Attempt::Granted(_)
    ));
}

/// A store that kept the old file open would hold beside one that opened the new file.
#[tokio::test]
async fn deleted_file_ends_its_holds() {
    let database = Database::new();
    let (mine, name) = (database.store().await, "a");
    let held = ticket(name, TTL);
    mine.attempt(&held).await.unwrap();
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", database.file())).unwrap();
    }
    let other = database.store().await;
    let next = other.attempt(&ticket(name, TTL)).await.unwrap();
    assert!(matches!(next, Attempt::Granted(_)), "{next:?}");
    let renewed = mine.renew(std::slice::from_ref(&held)).await.pop();
    assert_eq!(renewed.unwrap().unwrap(), Renewal::NotHeld);
    let again = mine.attempt(&held).await.unwrap();
    assert!(matches!(again, Attempt::Held { .. }), "{again:?}");
}
