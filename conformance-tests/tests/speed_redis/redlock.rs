//! One client of five servers, of which two may be dead or slow; and eight clients.

use std::time::Duration;

use conformance_tests::figures::{DELAY, bound, median, ratio, slow_link};
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::RedlockServers;
use conformance_tests::task::spawn;
use conformance_tests::{Outcome, ensure};
use lockkit_core::{Lease, LockClient};
use lockkit_redis::RedlockStore;
use tokio::time::Instant;

use crate::solo::{each, ping};

const CYCLES: u64 = 60;

async fn links(servers: &RedlockServers) -> Outcome<Vec<Proxy>> {
    let mut links = Vec::new();
    for node in servers.nodes() {
        links.push(slow_link(node.port()).await?);
    }
    Ok(links)
}

async fn client(links: &[Proxy]) -> Outcome<LockClient> {
    let hosts = links.iter().map(|link| ("127.0.0.1", link.addr().port()));
    let store = RedlockStore::builder(hosts).connect().await?;
    let lease = Lease::renewed(Duration::from_secs(30));
    Ok(LockClient::builder(store).lease(lease).build()?)
}

pub(crate) async fn cycle_of_five_nodes_is_two_round_trips() -> Outcome {
    for how in ["well", "two 200 ms late", "two dead"] {
        let servers = RedlockServers::forgetful().await?;
        let links = links(&servers).await?;
        let client = client(&links).await?;
        let lock = client.lock("solo")?;
        lock.acquire().await?.release().await?;
        let trip = ping(links[4].addr().port()).await?;
        for at in [0, 2] {
            match how {
                "two dead" => servers.nodes()[at].process().kill(),
                "two 200 ms late" => links[at].delay_both(Duration::from_millis(100)),
                _ => {}
            }
        }
        let before = servers.nodes()[4].calls("evalsha").await?;
        let (mut same, mut fresh) = (Vec::new(), Vec::new());
        for turn in 0..CYCLES {
            let start = Instant::now();
            lock.acquire().await?.release().await?;
            same.push(start.elapsed());
            let lock = client.lock(format!("solo/{turn}"))?;
            let start = Instant::now();
            lock.acquire().await?.release().await?;
            fresh.push(start.elapsed());
        }
        tokio::time::sleep(DELAY * 4).await;
        let scripts = servers.nodes()[4].calls("evalsha").await? - before;
        let (same, fresh) = (ratio(median(same)?, trip), ratio(median(fresh)?, trip));
        let scripts = each(scripts, CYCLES * 2);
        println!(
            "five nodes {trip:?} away, {how}: a cycle takes as long as {same:.2} round trips, with a fresh name \
             {fresh:.2}; {scripts:.2} EVALSHA at a node"
        );
        for trips in [same, fresh] {
            ensure(trips <= bound(2.15, 2.9), format!("{how}: {trips:.2}"))?;
        }
        ensure(scripts <= 2.02, format!("{how}: {scripts:.2} EVALSHA"))?;
    }
    Ok(())
}

pub(crate) async fn eight_clients_of_five_nodes_hand_over() -> Outcome {
    const TURNS: u32 = 10;
    let servers = RedlockServers::forgetful().await?;
    let links = links(&servers).await?;
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(client(&links).await?.lock("crowd")?);
    }
    let start = Instant::now();
    let tasks = clients.into_iter().map(|lock| {
        spawn(async move {
            for _ in 0..TURNS {
                lock.acquire().await?.release().await?;
            }
            Ok::<_, lockkit_core::Error>(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.soon().await??;
    }
    let rate = f64::from(TURNS * 8) / start.elapsed().as_secs_f64();
    println!(
        "five nodes {:?} away, eight clients: {rate:.0} hand-offs a second",
        DELAY * 2
    );
    ensure(rate >= bound(42.0, 30.0), format!("{rate:.0} a second"))
}
