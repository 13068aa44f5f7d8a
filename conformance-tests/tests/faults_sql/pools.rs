//! The application's pool: the store takes the address from it, and no connection.

use std::sync::Arc;

use conformance_tests::task::{elsewhere, soon, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::contract::Ticket;
use lockkit_core::{ClientId, DistributedLock as _, HolderId, Lease, LockClient, LockName};
use lockkit_sql::{SqlStore, TxLock};
use tokio::time::sleep;

use crate::world::{Database, LONG, Maria, SOON, TTL, WAYS, builder, client, only_rows_left};

async fn on_pool<D: Database>(pool: &sqlx::Pool<D::Driver>) -> Outcome<LockClient> {
    let store = SqlStore::<D::Dialect>::builder(pool.clone());
    let client = LockClient::builder(store.connect().await?);
    Ok(client.lease(Lease::renewed(LONG)).build()?)
}

/// Its only connection is in a transaction, which takes a lock: of a name never used, and of one that was.
pub(crate) async fn locks_need_no_connection_of_the_pool<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(1).await?;
    let mine = on_pool::<D>(&pool).await?;
    for _ in 0..2 {
        let mut transaction = pool.begin().await?;
        let take = TxLock::<D::Dialect>::take(&mine, "jobs", &mut transaction);
        let taken = within(SOON, take).await??;
        ensure(taken.is_some(), "a free lock was refused")?;
        let guard = within(SOON, mine.lock("other")?.acquire()).await??;
        guard.release().await?;
        transaction.commit().await?;
    }
    only_rows_left(&server).await
}

/// A transaction in another runtime that ends: the store keeps no connection that was made there.
pub(crate) async fn lock_of_a_transaction_leaves_no_connection_of_its_runtime<D: Database>()
-> Outcome {
    let server = Arc::new(D::start().await?);
    let mine = client(&*server, "lease", LONG).await?;
    let store: Option<&SqlStore<D::Dialect>> = mine.store();
    let store = store.ok_or_else(|| Failure::new("another store"))?;
    let holder = HolderId::new(ClientId::random(), 1);
    let ticket = Ticket::new(LockName::new("other")?, holder, LONG);
    // Then the store has no connection, and the next request makes one.
    server.kill_sessions().await?;
    until("the lost connections are closed", async || {
        drop(store.purge(LONG).await);
        Ok(store.counts().idle == 0)
    })
    .await?;
    let (in_it, of_it) = (Arc::clone(&server), mine.clone());
    elsewhere(async move || {
        let pool = in_it.pool(1).await?;
        let mut transaction = pool.begin().await?;
        TxLock::<D::Dialect>::take(&of_it, "jobs", &mut transaction).await?;
        Ok(transaction.commit().await?)
    })
    .await?;
    ensure(store.counts().idle > 0, "the store made no connection")?;
    store.attempt(&ticket).await?;
    store.release(&ticket).await?;
    only_rows_left(&*server).await
}

/// A store of a program that opened it in one runtime, and uses it in another after that has ended.
async fn outliving<D: Database>(
    server: &Arc<D>,
    way: &'static str,
) -> Outcome<SqlStore<D::Dialect>> {
    let server = Arc::clone(server);
    elsewhere(async move || Ok(builder(&*server, way).connect().await?)).await
}

pub(crate) async fn holds_outlive_the_runtime_that_opened_the_store<D: Database>() -> Outcome {
    let server = Arc::new(D::start().await?);
    for way in WAYS {
        let client = LockClient::builder(outliving(&server, way).await?);
        let client = client.lease(Lease::renewed(TTL)).build()?;
        let guard = within(SOON, client.lock("jobs")?.acquire()).await??;
        sleep(TTL * 2).await;
        guard.check()?;
        guard.release().await?;
    }
    only_rows_left(&*server).await
}

pub(crate) async fn purge_outlives_the_runtime_that_opened_the_store<D: Database>() -> Outcome {
    let server = Arc::new(D::start().await?);
    let store = outliving(&server, "lease").await?;
    // The first request finds out that the connections have ended.
    until("rows are purged", async || {
        Ok(store.purge(LONG).await.is_ok())
    })
    .await?;
    let client = LockClient::new(store)?;
    let pool = server.pool(1).await?;
    let mut transaction = pool.begin().await?;
    let taken = TxLock::<D::Dialect>::take(&client, "jobs", &mut transaction).await?;
    ensure(taken.is_some(), "a free lock was refused")?;
    transaction.commit().await?;
    only_rows_left(&*server).await
}

/// It connects with the options, as all do that no URL has checked.
pub(crate) async fn any_number_of_connections_is_accepted<D: Database>() -> Outcome {
    let server = D::start().await?;
    for most in [0, usize::MAX] {
        let store = server.builder().connections(most).connect().await?;
        let lock = LockClient::new(store)?.lock("jobs")?;
        within(SOON, lock.acquire()).await??.release().await?;
    }
    only_rows_left(&server).await
}

/// A user who may not make the table: the store cannot be opened, and the pool is as it was.
pub(crate) async fn refused_table_leaves_the_pool_unchanged<D: Database>() -> Outcome {
    let server = D::start().await?;
    server.run(D::NO_TABLES).await?;
    let pool = server.pool(1).await?;
    let opened = soon(SqlStore::<D::Dialect>::builder(pool.clone()).connect()).await?;
    let error = opened.err().ok_or_else(|| Failure::new("it was opened"))?;
    let outcome = error.outcome();
    ensure(
        outcome == lockkit_core::Outcome::Rejected,
        format!("{outcome:?}: {error:?}"),
    )?;
    let mut transaction = pool.begin().await?;
    D::count(&mut transaction).await?;
    Ok(transaction.commit().await?)
}

/// A password that was changed in the pool is used for the next connection.
pub(crate) async fn changed_password_is_used() -> Outcome {
    let server = Maria::start().await?;
    let pool = server.pool(1).await?;
    let lock = on_pool::<Maria>(&pool).await?.lock("jobs")?;
    lock.acquire().await?.release().await?;
    server
        .run("set password for app@'127.0.0.1' = password('changed')")
        .await?;
    pool.set_connect_options(server.options().password("changed"));
    server.kill_sessions().await?;
    within(SOON, lock.acquire()).await??.release().await?;
    let denied = client(&server, "lease", LONG).await.err();
    ensure(denied.is_some(), "the old password opens the server")?;
    only_rows_left(&server).await
}
