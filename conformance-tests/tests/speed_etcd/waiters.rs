//! The cost of many waiters for the server.

use std::time::Duration;

use conformance_tests::figures::{bound, share_of_a_core};
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::acquire;
use conformance_tests::{Outcome, ensure};
use etcd_client::{Client, GetOptions};
use lockkit_core::{Lease, Lock, LockClient};
use lockkit_etcd::EtcdStore;
use tokio::time::{Instant, sleep};

const WAITERS: usize = 2_000;
/// The longest time until all wait.
const START: Duration = Duration::from_secs(60);
/// The time of the measurement: longer than a waiter pauses between two attempts.
const SPAN: Duration = Duration::from_secs(20);

async fn lock_of(port: u16, lease: Duration) -> Outcome<Lock> {
    let store = EtcdStore::builder().endpoint("127.0.0.1", port);
    let client = LockClient::builder(store.connect().await?).lease(Lease::renewed(lease));
    Ok(client.build()?.lock("jobs")?)
}

/// Each has a store, a session and a connection of its own, as processes have.
pub(crate) async fn two_thousand_waiters_cost_the_server_little() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let port = cluster.ports()[0];
    let mut asker = Client::connect([format!("127.0.0.1:{port}")], None).await?;
    // Half of it is longer than a waiter pauses between two attempts.
    let lease = Duration::from_secs(60);
    let held = lock_of(port, lease).await?.acquire().await?;
    let mut waiters = Vec::new();
    for _ in 0..WAITERS {
        waiters.push(acquire(&lock_of(port, lease).await?));
    }
    let all = || Some(GetOptions::new().with_prefix().with_count_only());
    let end = Instant::now() + START;
    while usize::try_from(asker.get("lockkit/jobs/", all()).await?.count()) != Ok(WAITERS + 1) {
        ensure(Instant::now() < end, "not all stand in the queue")?;
        sleep(Duration::from_millis(100)).await;
    }
    // Each has repeated its attempt once, so that the start is over.
    sleep(SPAN).await;
    let share = share_of_a_core(cluster.process(0), SPAN).await?;
    println!(
        "{WAITERS} waiters: the server is busy for {:.1} % of a core",
        share * 100.0
    );
    held.check()?;
    held.release().await?;
    // The first one gets the lock, in spite of the others.
    let guard = waiters.swap_remove(0).soon().await??;
    guard.check()?;
    // The share of a core while no client releases. On a busy machine each step costs more.
    ensure(
        share <= bound(0.1, 0.2),
        format!("{:.1} % of a core", share * 100.0),
    )
}
