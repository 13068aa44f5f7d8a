//! Transactions of the application that depend on a hold.

use lockkit_core::{Error, FencingToken};
use lockkit_sql::{GuardedError, Sqlite, StillHeld as _, TxLock};
use sqlx::SqlitePool;

use crate::database::{Database, fixed};

pub(crate) async fn shop(database: &Database) -> SqlitePool {
    let pool = database.pool().await;
    let sql = "CREATE TABLE stock (n INTEGER NOT NULL); INSERT INTO stock VALUES (5)";
    sqlx::raw_sql(sql).execute(&pool).await.unwrap();
    pool
}

pub(crate) async fn stock(pool: &SqlitePool) -> i64 {
    let stock = sqlx::query_scalar("SELECT n FROM stock");
    stock.fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn commits_while_held() {
    let database = Database::new();
    let (client, pool) = (database.client().await, shop(&database).await);
    let guard = client.lock("stock").unwrap().acquire().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let sell = sqlx::query("UPDATE stock SET n = n - 1");
    sell.execute(&mut *transaction).await.unwrap();
    client.still_held(&guard, &mut transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(stock(&pool).await, 4);
    guard.release().await.unwrap();
}

/// It has not ended, and the transaction cannot depend on it.
#[tokio::test]
async fn hold_beside_others_is_refused() {
    let database = Database::new();
    let (client, pool) = (database.client().await, shop(&database).await);
    let reader = client.rw_lock("stock").unwrap().read();
    let permit = client.semaphore("seats", 2).unwrap();
    for shared in [reader, permit] {
        let guard = shared.acquire().await.unwrap();
        let mut transaction = pool.begin().await.unwrap();
        let refused = client.still_held(&guard, &mut transaction).await;
        let expected = matches!(
            refused,
            Err(GuardedError::Refused(Error::InvalidOption { .. }))
        );
        assert!(expected, "{refused:?}");
        transaction.rollback().await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn stale_holder_is_fenced() {
    let database = Database::new();
    let (client, pool) = (database.client().await, shop(&database).await);
    let lock = client
        .lock("stock")
        .unwrap()
        .with_lease(fixed(200))
        .unwrap();
    let stale = lock.acquire().await.unwrap();
    let other = database.client().await;
    let next = other.lock("stock").unwrap().acquire().await.unwrap();
    assert!(next.token() > stale.token());
    let mut transaction = pool.begin().await.unwrap();
    let sell = sqlx::query("UPDATE stock SET n = n - 1");
    sell.execute(&mut *transaction).await.unwrap();
    let refused = client.still_held(&stale, &mut transaction).await;
    assert!(matches!(refused, Err(GuardedError::Fenced)), "{refused:?}");
    transaction.rollback().await.unwrap();
    assert_eq!(stock(&pool).await, 5);

    let mut transaction = pool.begin().await.unwrap();
    other.still_held(&next, &mut transaction).await.unwrap();
    transaction.commit().await.unwrap();
    next.release().await.unwrap();
}

/// The lease has ended, but the lock is not free before the transaction ends.
#[tokio::test]
async fn takeover_waits_for_commit() {
    let database = Database::new();
    let (client, pool) = (database.client().await, shop(&database).await);
    let lock = client
        .lock("stock")
        .unwrap()
        .with_lease(fixed(200))
        .unwrap();
    let guard = lock.acquire().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    client.still_held(&guard, &mut transaction).await.unwrap();
    let other = database.client().await.lock("stock").unwrap();
    let runtime = tokio::runtime::Handle::current();
    let waiter = runtime.spawn(async move { other.acquire().await });
    guard.lost().await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert!(!waiter.is_finished(), "taken over inside the transaction");
    transaction.commit().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn tx_lock_lasts_until_commit() {
    let database = Database::new();
    let (client, pool) = (database.client().await, shop(&database).await);
    let held = client.lock("stock").unwrap().acquire().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let refused = TxLock::<Sqlite>::take(&client, "stock", &mut transaction).await;
    assert!(refused.unwrap().is_none(), "taken although somebody holds");
    transaction.rollback().await.unwrap();
    held.release().await.unwrap();

    let mut transaction = pool.begin().await.unwrap();
    let lock = TxLock::<Sqlite>::take(&client, "stock", &mut transaction).await;
    let mut lock = lock.unwrap().unwrap();
    let sell = sqlx::query("UPDATE stock SET n = n - 1");
    sell.execute(&mut **lock).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(stock(&pool).await, 4);
    let free = client.lock("stock").unwrap().try_acquire().await.unwrap();
    free.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn refuses_store_of_another_kind() {
    let database = Database::new();
    let pool = shop(&database).await;
    let client = lockkit_core::LockClient::new(lockkit_core::memory::MemoryStore::new()).unwrap();
    let guard = client.lock("stock").unwrap().acquire().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let refused = client.still_held(&guard, &mut transaction).await;
    assert!(
        matches!(refused, Err(GuardedError::ForeignStore)),
        "{refused:?}"
    );
}

/// A column of tokens is read and written as tokens.
#[tokio::test]
async fn token_is_a_column() {
    let database = Database::new();
    let mut connection = database.connection().await;
    let token = FencingToken::new(1_795_000_000_000_001).unwrap();
    let next = sqlx::query_scalar("SELECT ? + 1").bind(token);
    let next: FencingToken = next.fetch_one(&mut connection).await.unwrap();
    assert_eq!(next.get(), token.get() + 1);
    let zero = sqlx::query_scalar::<_, FencingToken>("SELECT 0");
    let zero = zero.fetch_one(&mut connection).await.unwrap_err();
    assert!(matches!(zero, sqlx::Error::ColumnDecode { .. }), "{zero}");
}

/// The statements in the manual's page on fencing, of which the last one also inserts the row.
#[tokio::test]
async fn statements_of_the_manual_refuse_a_smaller_token() {
    let page = include_str!("../../../lockkit/docs/fencing.md");
    let blocks = page.split("```sql\n").skip(1);
    let blocks: Vec<_> = blocks.filter_map(|it| it.split("```").next()).collect();
    assert_eq!(blocks.len(), 2, "{blocks:?}");
    let (column, update) = blocks[0].split_once(';').unwrap();
    for (write, item) in [(update, 42), (blocks[1], 42), (blocks[1], 43)] {
        let database = Database::new();
        let pool = database.pool().await;
        let sql = "CREATE TABLE stock (item INTEGER PRIMARY KEY, amount INTEGER NOT NULL); \
                   INSERT INTO stock VALUES (42, 10)";
        sqlx::raw_sql(sql).execute(&pool).await.unwrap();
        sqlx::query(column).execute(&pool).await.unwrap();
        for (token, amount, rows) in [(5, 7, 1), (4, 6, 0), (5, 8, 1)] {
            let write = sqlx::query(write).bind(amount).bind(token).bind(item);
            let written = write.execute(&pool).await.unwrap();
            assert_eq!(written.rows_affected(), rows, "token {token}");
        }
        let row = sqlx::query_as("SELECT amount, token FROM stock WHERE item = ?");
        let row: (i32, i32) = row.bind(item).fetch_one(&pool).await.unwrap();
        assert_eq!(row, (8, 5));
    }
}
