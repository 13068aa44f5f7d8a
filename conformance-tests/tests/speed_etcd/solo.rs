//! One client, nobody else.

use std::time::Duration;

use conformance_tests::proxy::{Direction, Proxy};
use conformance_tests::servers::EtcdCluster;
use conformance_tests::{Failure, Outcome, ensure};
use etcd_client::{Client, PutOptions};
use lockkit_core::LockClient;
use lockkit_etcd::EtcdStore;
use tokio::time::Instant;

use crate::bound;

/// The way there, and the way back.
pub(crate) const DELAY: Duration = Duration::from_millis(5);

pub(crate) async fn client_at(port: u16) -> Outcome<LockClient> {
    let store = EtcdStore::builder().endpoint("127.0.0.1", port);
    Ok(LockClient::new(store.connect().await?)?)
}

pub(crate) async fn slow_way(cluster: &EtcdCluster) -> Outcome<Proxy> {
    let proxy = Proxy::start(([127, 0, 0, 1], cluster.ports()[0]).into()).await?;
    for direction in [Direction::Request, Direction::Reply] {
        proxy.delay(direction, DELAY);
    }
    Ok(proxy)
}

pub(crate) async fn a_cycle_is_two_round_trips() -> Outcome {
    const CYCLES: u64 = 60;
    let cluster = EtcdCluster::of(1).await?;
    let proxy = slow_way(&cluster).await?;
    let lock = client_at(proxy.addr().port()).await?.lock("solo")?;
    // The session is made.
    lock.acquire().await?.release().await?;
    let mut asker = Client::connect([format!("127.0.0.1:{}", proxy.addr().port())], None).await?;
    asker.get("trip", None).await?;
    let mut trips = Vec::new();
    for _ in 0..30 {
        let start = Instant::now();
        asker.get("trip", None).await?;
        trips.push(start.elapsed());
    }
    let trip = median(trips)?;
    let mut cycles = Vec::new();
    for _ in 0..CYCLES {
        let start = Instant::now();
        lock.acquire().await?.release().await?;
        cycles.push(start.elapsed());
    }
    let trips = median(cycles)?.as_secs_f64() / trip.as_secs_f64();
    println!("solo, {trip:?} away: {trips:.2} round trips a cycle");
    ensure(trips <= bound(2.3, 2.6), format!("{trips:.2} round trips"))
}

pub(crate) async fn a_cycle_costs_little_more_than_a_put_and_a_deletion() -> Outcome {
    const CYCLES: u32 = 100;
    let cluster = EtcdCluster::of(1).await?;
    let lock = client_at(cluster.ports()[0]).await?.lock("solo")?;
    lock.acquire().await?.release().await?;
    let mut asker = cluster.client().await?;
    let lease = asker.lease_grant(60, None).await?.id();
    // In turns, so that what else the machine does meets both.
    let (mut ours, mut least) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let start = Instant::now();
        for _ in 0..CYCLES {
            lock.acquire().await?.release().await?;
        }
        ours.push(start.elapsed() / CYCLES);
        let start = Instant::now();
        for _ in 0..CYCLES {
            let options = PutOptions::new().with_lease(lease);
            asker.put("bare", "holder", Some(options)).await?;
            asker.delete("bare", None).await?;
        }
        least.push(start.elapsed() / CYCLES);
    }
    let (ours, least) = (median(ours)?, median(least)?);
    let ratio = ours.as_secs_f64() / least.as_secs_f64();
    println!("solo, loopback: {ours:?} a cycle, put and delete {least:?}, ratio {ratio:.2}");
    ensure(ratio <= bound(1.4, 2.0), format!("ratio {ratio:.2}"))
}

fn median(mut times: Vec<Duration>) -> Outcome<Duration> {
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied();
    middle.ok_or_else(|| Failure::new("nothing was measured"))
}
