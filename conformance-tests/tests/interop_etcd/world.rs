//! Clients on the names that other programs use, and one queue for both.

use std::time::Duration;

use conformance_tests::foreign::Peer;
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::{Lease, Lock, LockClient};
use lockkit_etcd::{EtcdStore, Names};

pub(crate) const SOON: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);

pub(crate) async fn client(cluster: &EtcdCluster) -> Outcome<LockClient> {
    let mut store = EtcdStore::builder().names(Names::Raw);
    for port in cluster.ports() {
        store = store.endpoint("127.0.0.1", port);
    }
    let client = LockClient::builder(store.connect().await?);
    Ok(client.lease(Lease::renewed(LONG)).build()?)
}

/// Waits until so many wait for a lock.
pub(crate) async fn waiting(lock: &Lock, count: u32) -> Outcome {
    until("all wait in the queue", async || {
        let state = lock.inspect().await?;
        Ok(state.is_some_and(|state| state.waiters == Some(count)))
    })
    .await
}

/// Waiters of both programs are served in the order of their requests.
pub(crate) async fn one_queue(cluster: &EtcdCluster, mut theirs: Peer) -> Outcome {
    let lock = client(cluster).await?.lock("jobs")?;
    let held = lock.acquire().await?;
    theirs.send("first lock jobs 20000").await?;
    waiting(&lock, 1).await?;
    let second = acquire(&client(cluster).await?.lock("jobs")?);
    waiting(&lock, 2).await?;
    theirs.send("third lock jobs 20000").await?;
    waiting(&lock, 3).await?;
    held.release().await?;
    let first = theirs.token_of("first").await?;
    theirs.expect("first unlock jobs", "done").await?;
    let guard = within(SOON, second.soon()).await???;
    let token = guard.token().get();
    guard.release().await?;
    let third = theirs.token_of("third").await?;
    theirs.expect("third unlock jobs", "done").await?;
    ensure(
        first < token && token < third,
        format!("served out of order: {first} {token} {third}"),
    )
}
