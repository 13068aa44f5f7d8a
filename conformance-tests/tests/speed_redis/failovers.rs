//! What a quarantine and `acks=` cost while no server fails.

use std::time::Duration;

use conformance_tests::contention::{SPAN, contend, float};
use conformance_tests::figures::{DELAY, bound, median, processor_time, ratio, slow_link};
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::RedisServer;
use conformance_tests::task::until;
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{Lock, LockClient};
use lockkit_redis::{RedisStore, RedisStoreBuilder};
use tokio::time::Instant;

use crate::solo::{each, ping};

/// A server, and a replica that is so far away.
async fn replicated(delay: Duration) -> Outcome<(RedisServer, RedisServer, Proxy)> {
    let server = RedisServer::forgetful().await?;
    let link = slow_link(server.port()).await?;
    link.delay_both(delay);
    let address = format!("127.0.0.1 {}", link.addr().port());
    let words = [
        "--appendonly",
        "no",
        "--repl-diskless-sync-delay",
        "0",
        "--replicaof",
        &address,
    ];
    let replica = RedisServer::start(&std::env::current_exe()?, words).await?;
    until("the replica follows", async || {
        let state = server.ask(&["INFO", "replication"]).await?.concat();
        Ok(state.contains("state=online"))
    })
    .await?;
    Ok((server, replica, link))
}

async fn client(store: RedisStoreBuilder) -> Outcome<LockClient> {
    Ok(LockClient::new(store.connect().await?)?)
}

/// The replica is beside the server, or as far from it as the client is.
pub(crate) async fn acks_cost_no_round_trip_of_the_client() -> Outcome {
    const CYCLES: u32 = 40;
    for delay in [Duration::ZERO, DELAY] {
        let (server, _replica, of_replica) = replicated(delay).await?;
        let way = slow_link(server.port()).await?;
        let store = RedisStore::builder().tcp("127.0.0.1", way.addr().port());
        let client = client(store.acks(1)).await?;
        let lock = client.lock("solo")?;
        lock.acquire().await?.release().await?;
        let trip = ping(way.addr().port()).await?;
        let trip_of_replica = ping(of_replica.addr().port()).await?;
        let (waits, passed) = (server.calls("wait").await?, way.counts().round_trips);
        let mut cycles = Vec::new();
        for _ in 0..CYCLES {
            let start = Instant::now();
            lock.acquire().await?.release().await?;
            cycles.push(start.elapsed());
        }
        let counted = each(way.counts().round_trips - passed, CYCLES.into());
        let waits = each(server.calls("wait").await? - waits, CYCLES.into());
        let cycle = median(cycles)?;
        let trips = ratio(cycle.saturating_sub(trip_of_replica * 2), trip);
        println!(
            "acks=1, {trip:?} away, the replica {trip_of_replica:?} from the server: a cycle takes {cycle:?}, \
             without two trips to the replica as long as {trips:.2} round trips; {counted:.2} are counted, \
             {waits:.2} WAIT"
        );
        ensure(counted <= 2.1, format!("{counted:.2} round trips"))?;
        ensure(trips <= bound(2.15, 2.9), format!("{trips:.2} round trips"))?;
        ensure(waits >= 1.0, format!("{waits:.2} WAIT in a cycle"))?;
        // The grant was waited for: two trips of the client, and one to the replica.
        let least = DELAY * 4 + delay * 2;
        ensure(cycle >= least, format!("{cycle:?} of {least:?}"))?;
        let throughput = contend(locks(&client, "acked")?, SPAN).await?;
        println!(
            "  64 tasks on 64 locks: {:.0} cycles/s",
            throughput.per_second()
        );
    }
    Ok(())
}

fn locks(client: &LockClient, prefix: &str) -> Outcome<Vec<Lock>> {
    let names = (0..64).map(|number| format!("{prefix}/{number}"));
    let locks: Result<_, _> = names.map(|name| client.lock(name)).collect();
    Ok(locks?)
}

/// Cycles of 64 tasks, on as many locks and on one, and the processor time of the server for each.
pub(crate) async fn quarantine_costs_little() -> Outcome {
    const PAIRS: u32 = 60;
    let server = RedisServer::forgetful().await?;
    server.has_lost_nothing().await?;
    let pid = server.process().pid().map(|pid| pid.to_string());
    let pid = pid.ok_or_else(|| Failure::new("the server has no process"))?;
    let store = || RedisStore::builder().tcp("127.0.0.1", server.port());
    let with = client(store().quarantine(Duration::from_secs(30))).await?;
    let without = client(store()).await?;
    let one = |client: &LockClient| Ok::<_, lockkit_core::Error>(vec![client.lock("one")?; 64]);
    for (what, crowds, least_rate) in [
        (
            "64 locks",
            [locks(&with, "with")?, locks(&without, "without")?],
            0.85,
        ),
        ("one lock", [one(&with)?, one(&without)?], 0.95),
    ] {
        let (mut used, mut cycles) = ([0.0; 2], [0.0; 2]);
        // In short turns, so that what else the machine does meets both.
        for _ in 0..PAIRS {
            for (side, crowd) in crowds.iter().enumerate() {
                let before = processor_time(&pid)?;
                cycles[side] += float(contend(crowd.clone(), SPAN / 40).await?.total());
                used[side] += (processor_time(&pid)? - before).as_secs_f64();
            }
        }
        let [held, least] = [0, 1].map(|side| used[side] / cycles[side]);
        let (more, rate) = (held / least, cycles[0] / cycles[1]);
        println!(
            "64 tasks on {what}: with a quarantine {rate:.3} of the cycles without, and {more:.3} of the \
             processor time of the server for each"
        );
        ensure(more <= 1.15, format!("{what}: {more:.3}"))?;
        ensure(rate >= least_rate, format!("{what}: {rate:.3}"))?;
    }
    Ok(())
}
