//! Rows that stay after their holds.

use std::time::Duration;

use conformance_tests::task::within;
use conformance_tests::{Outcome, ensure};
use lockkit_core::contract::Ticket;
use lockkit_core::{ClientId, DistributedLock as _, HolderId, LockClient, LockName};

use crate::world::{Database, LONG, SOON, TTL, builder, only_rows_left};

/// Those go that nobody has used for long, however they were given back; a token that grows does not need
/// them.
pub(crate) async fn purge_deletes_locks_unused_for_long<D: Database>() -> Outcome {
    let server = D::start().await?;
    let store = builder(&server, "lease").connect().await?;
    let client = LockClient::new(store.clone())?;
    let (often, once) = (client.lock("often")?, client.lock("once")?);
    let mut last = None;
    for _ in 0..6 {
        let guard = often.acquire().await?;
        last = Some(guard.token());
        guard.release().await?;
    }
    once.acquire().await?.release().await?;
    let held = client.lock("held")?.acquire().await?;
    let frozen = Ticket::new(
        LockName::new("frozen")?,
        HolderId::new(ClientId::random(), 1),
        TTL,
    );
    store.attempt(&frozen).await?;
    ensure(store.purge(LONG).await? == 0, "a row that was just used")?;
    tokio::time::sleep(TTL * 2).await;
    ensure(store.purge(TTL * 4).await? == 0, "a row that was used")?;
    let unused = Duration::from_millis(500);
    ensure(store.purge(unused).await? == 3, "not those of the past")?;
    held.check()?;
    held.note("a row of its own").await?;
    // A row that a transaction of an application has locked delays no purge, which would delay renewals.
    let pool = server.pool(1).await?;
    let mut row = pool.begin().await?;
    D::lock_row(&mut row, "held").await?;
    within(SOON, store.purge(Duration::ZERO)).await??;
    row.rollback().await?;
    held.check()?;
    held.release().await?;
    let guard = within(SOON, often.acquire()).await??;
    ensure(Some(guard.token()) > last, "the token did not grow")?;
    guard.release().await?;
    only_rows_left(&server).await
}
