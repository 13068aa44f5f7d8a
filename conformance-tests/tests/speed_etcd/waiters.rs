//! The cost of many waiters for the server.

use std::time::Duration;

use conformance_tests::figures::{bound, share_of_a_core};
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::acquire;
use conformance_tests::{Failure, Outcome, ensure};
use etcd_client::{Client, GetOptions, SortOrder, SortTarget};
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

/// The first keys of the queue, in their order.
async fn keys(asker: &mut Client) -> Outcome<Vec<String>> {
    let options = GetOptions::new()
        .with_prefix()
        .with_sort(SortTarget::Create, SortOrder::Ascend)
        .with_limit(3)
        .with_keys_only();
    let found = asker.get("lockkit/jobs/", Some(options)).await?;
    let keys = found.kvs().iter().map(|kv| kv.key_str().map(str::to_owned));
    Ok(keys.collect::<Result<_, _>>()?)
}

/// Waits until so many stand in the queue behind the holder. Returns its first keys.
async fn all_wait(asker: &mut Client, count: usize) -> Outcome<Vec<String>> {
    let all = || Some(GetOptions::new().with_prefix().with_count_only());
    let end = Instant::now() + START;
    while usize::try_from(asker.get("lockkit/jobs/", all()).await?.count()) != Ok(count + 1) {
        ensure(Instant::now() < end, "not all stand in the queue")?;
        sleep(Duration::from_millis(100)).await;
    }
    keys(asker).await
}

/// Each has a store, a session and a connection of its own, as processes have.
pub(crate) async fn two_thousand_waiters_cost_the_server_little() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let port = cluster.ports()[0];
    let mut asker = Client::connect([format!("127.0.0.1:{port}")], None).await?;
    // Half of it is longer than a waiter pauses between two attempts.
    let lease = Duration::from_secs(60);
    let held = lock_of(port, lease).await?.acquire().await?;
    let first = acquire(&lock_of(port, lease).await?);
    // The others begin once it stands in the queue.
    let mut queue = all_wait(&mut asker, 1).await?;
    let place = queue.pop();
    let mut waiters = Vec::new();
    for _ in 1..WAITERS {
        waiters.push(acquire(&lock_of(port, lease).await?));
    }
    all_wait(&mut asker, WAITERS).await?;
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
    let guard = match first.soon().await {
        Ok(guard) => guard?,
        Err(_) => {
            let left = keys(&mut asker).await?;
            let keeps = place.is_some_and(|place| left.contains(&place));
            let text =
                format!("the first one did not get it; it keeps its place: {keeps}; {left:?}");
            return Err(Failure::new(text));
        }
    };
    guard.check()?;
    // The share of a core while no client releases. On a busy machine each step costs more.
    ensure(
        share <= bound(0.1, 0.2),
        format!("{:.1} % of a core", share * 100.0),
    )
}
