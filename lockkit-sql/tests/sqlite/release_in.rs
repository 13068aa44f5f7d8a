//! Releases inside transactions of the application.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::layers::{Faults, Faulty};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, Guard, LockClient};
use lockkit_sql::{GuardedError, ReleaseIn as _, SqliteStore, StillHeld as _};
use sqlx::{Sqlite, SqlitePool, Transaction};

use crate::database::{Database, fixed};
use crate::guarded::{shop, stock};

/// Sells one, in a transaction that has not ended.
async fn sell(pool: &SqlitePool) -> Transaction<'static, Sqlite> {
    let mut transaction = pool.begin().await.unwrap();
    let sell = sqlx::query("UPDATE stock SET n = n - 1");
    sell.execute(&mut *transaction).await.unwrap();
    transaction
}

struct Setup {
    pool: SqlitePool,
    store: SqliteStore,
    client: LockClient,
    calls: Faults,
    other: LockClient,
    _database: Database,
}

async fn setup() -> Setup {
    let database = Database::new();
    let store = database.store().await;
    let faulty = Faulty::new(Arc::new(store.clone()), 1);
    let calls = faulty.faults();
    let client = LockClient::builder(faulty).prefix("shop/");
    Setup {
        pool: shop(&database).await,
        store,
        client: client.build().unwrap(),
        calls,
        other: database.client().await,
        _database: database,
    }
}

impl Setup {
    async fn guard(&self) -> Guard {
        self.client.lock("stock").unwrap().acquire().await.unwrap()
    }

    async fn is_free(&self) -> bool {
        let lock = self.other.lock("shop/stock").unwrap();
        match lock.try_acquire().await.unwrap() {
            Some(guard) => guard.release().await.is_ok(),
            None => false,
        }
    }
}

#[tokio::test]
async fn lock_and_data_are_visible_with_the_commit() {
    let setup = setup().await;
    for (guarded, left) in [(false, 4), (true, 3)] {
        let guard = setup.guard().await;
        let token = guard.token();
        let other = setup.other.lock("shop/stock").unwrap();
        let runtime = tokio::runtime::Handle::current();
        let waiter = runtime.spawn(async move { other.acquire().await });
        let mut transaction = sell(&setup.pool).await;
        if guarded {
            let held = setup.client.still_held(&guard, &mut transaction);
            held.await.unwrap();
        }
        let before = setup.calls.all_calls();
        let released = guard.release_in(&mut transaction).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(!waiter.is_finished(), "granted before the commit");
        transaction.commit().await.unwrap();
        // Long before the lease ends.
        let next = tokio::time::timeout(Duration::from_secs(5), waiter);
        let next = next.await.unwrap().unwrap().unwrap();
        assert_eq!(stock(&setup.pool).await, left);
        assert!(next.token() > token);
        released.committed();
        setup.client.drain().await;
        assert_eq!(setup.calls.all_calls(), before);
        assert_eq!(setup.store.counts().tickets, 0);
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn rollback_leaves_the_release_to_the_client() {
    let setup = setup().await;
    let guard = setup.guard().await;
    let mut transaction = sell(&setup.pool).await;
    let released = guard.release_in(&mut transaction).await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(!setup.is_free().await, "a rollback has released the lock");
    drop(released);
    setup.client.drain().await;
    assert!(setup.is_free().await);
    assert_eq!(stock(&setup.pool).await, 5);
    // Also if it is dropped first.
    let guard = setup.guard().await;
    let mut transaction = sell(&setup.pool).await;
    drop(guard.release_in(&mut transaction).await.unwrap());
    tokio::time::sleep(Duration::from_millis(100)).await;
    transaction.rollback().await.unwrap();
    setup.client.drain().await;
    assert!(setup.is_free().await);
}

#[tokio::test]
async fn hold_that_has_ended_is_fenced() {
    let setup = setup().await;
    // Another has broken the lock, and the holder has not noticed.
    for taken in [false, true] {
        let stale = setup.guard().await;
        let lock = setup.other.lock("shop/stock").unwrap();
        lock.break_lock().await.unwrap().unwrap();
        let next = match taken {
            true => Some(lock.acquire().await.unwrap()),
            false => None,
        };
        let mut transaction = sell(&setup.pool).await;
        let refused = stale.release_in(&mut transaction).await;
        assert!(matches!(refused, Err(GuardedError::Fenced)), "{refused:?}");
        transaction.rollback().await.unwrap();
        setup.client.drain().await;
        if let Some(next) = next {
            next.release().await.unwrap();
        }
    }
    // The holder knows that its lease has ended.
    let lock = setup.client.lock("stock").unwrap();
    let lock = lock.with_lease(fixed(200)).unwrap();
    let expired = lock.acquire().await.unwrap();
    expired.lost().await;
    let mut transaction = sell(&setup.pool).await;
    let refused = expired.release_in(&mut transaction).await;
    assert!(matches!(refused, Err(GuardedError::Fenced)), "{refused:?}");
    transaction.rollback().await.unwrap();
    assert_eq!(stock(&setup.pool).await, 5);
}

#[tokio::test]
async fn refused_guard_is_dropped() {
    let setup = setup().await;
    let mut transaction = setup.pool.begin().await.unwrap();
    let reader = setup
        .client
        .rw_lock("stock")
        .unwrap()
        .read()
        .acquire()
        .await
        .unwrap();
    let refused = reader.release_in(&mut transaction).await;
    let unchanged = |refused: &Result<_, _>| {
        matches!(
            refused,
            Err(GuardedError::Refused(Error::InvalidOption { .. }))
        )
    };
    assert!(unchanged(&refused), "{refused:?}");
    setup.client.drain().await;
    let first = setup.guard().await;
    let second = first.reenter().unwrap();
    let refused = second.release_in(&mut transaction).await;
    assert!(unchanged(&refused), "{refused:?}");
    first.check().unwrap();
    assert!(!setup.is_free().await, "released with another guard");
    drop(first);
    let lock = setup.client.lock("kept").unwrap();
    let lock = lock.with_min_hold(Duration::from_secs(1));
    let kept = lock.acquire().await.unwrap();
    let refused = kept.release_in(&mut transaction).await;
    assert!(unchanged(&refused), "{refused:?}");
    setup.client.drain().await;
    assert!(setup.is_free().await);

    let foreign = LockClient::new(MemoryStore::new()).unwrap();
    let foreign = foreign.lock("stock").unwrap().acquire().await.unwrap();
    let refused = foreign.release_in(&mut transaction).await;
    assert!(
        matches!(refused, Err(GuardedError::ForeignStore)),
        "{refused:?}"
    );
}

/// A transaction that cannot write: the client releases.
#[tokio::test]
async fn failed_release_goes_on_in_the_background() {
    let setup = setup().await;
    let guard = setup.guard().await;
    let mut transaction = setup.pool.begin().await.unwrap();
    let read_only = sqlx::query("PRAGMA query_only = 1");
    read_only.execute(&mut *transaction).await.unwrap();
    let refused = guard.release_in(&mut transaction).await;
    assert!(
        matches!(refused, Err(GuardedError::Backend(_))),
        "{refused:?}"
    );
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("readonly database"), "{text}");
    setup.client.drain().await;
    assert!(setup.is_free().await);
}

#[test]
fn release_dropped_outside_a_runtime_goes_on() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (setup, released) = runtime.block_on(async {
        let setup = setup().await;
        let guard = setup.guard().await;
        let mut transaction = sell(&setup.pool).await;
        let released = guard.release_in(&mut transaction).await.unwrap();
        transaction.rollback().await.unwrap();
        (setup, released)
    });
    drop(released);
    runtime.block_on(async {
        setup.client.drain().await;
        assert!(setup.is_free().await);
    });
}
