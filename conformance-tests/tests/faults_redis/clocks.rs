//! Nodes of a Redlock whose clocks differ by seconds. Tokens come from these clocks, and order the holds all the same.

use std::time::Duration;

use conformance_tests::checker::check;
use conformance_tests::foreign::Version;
use conformance_tests::history::Recorder;
use conformance_tests::servers::{RedisServer, RedlockServers, ServerClock};
use conformance_tests::taker::Worker;
use conformance_tests::task::{soak_length, spawn};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::{Lease, LockClient};
use lockkit_redis::{RedisStore, RedlockStore};
use tokio::time::{Instant, sleep};

use crate::world::LONG;

const CLIENTS: usize = 4;
/// How long each node is frozen.
const FROZEN: Duration = Duration::from_millis(300);

/// The program of the nodes.
fn valkey() -> Outcome<Version> {
    let mut versions = Version::redis().into_iter();
    let found = versions.find(|version| version.name() == "valkey9");
    found.ok_or_else(|| Failure::new("no version is called valkey9"))
}

pub(crate) fn tests() -> TestSuite {
    let absent = valkey().map_or_else(|error| Some(error.to_string()), |it| it.missing());
    TestSuite::new("clocks-of-nodes", ServerClock::missing())
        .needing(absent)
        .test(holds_are_ordered_whichever_clocks_the_majority_has)
}

/// The whole seconds of its clock.
async fn clock(node: &RedisServer) -> Outcome<i64> {
    Ok(node.ask(&["TIME"]).await?[0].parse()?)
}

/// One node after the other is frozen, so that each majority has other clocks.
async fn holds_are_ordered_whichever_clocks_the_majority_has() -> Outcome {
    let mut clocks = Vec::new();
    for offset in ["-2", "+2", "+0", "-1", "+1"] {
        clocks.push(ServerClock::new(offset)?);
    }
    let servers = RedlockServers::with_clocks(&valkey()?.path(), &clocks).await?;
    let [behind, ahead] = [
        clock(&servers.nodes()[0]).await?,
        clock(&servers.nodes()[1]).await?,
    ];
    ensure(ahead - behind >= 3, format!("{behind} s and {ahead} s"))?;
    let span = soak_length(Duration::from_secs(6))?;
    let (recorder, mut workers) = (Recorder::new(), Vec::new());
    for _ in 0..CLIENTS {
        let options = RedisStore::builder().ttl(LONG);
        let store = RedlockStore::builder(servers.hosts()).options(options);
        let client = LockClient::builder(store.connect().await?).lease(Lease::renewed(LONG));
        let worker = Worker::new(client.build()?.lock("jobs")?, recorder.clone());
        workers.push(spawn(async move { worker.work(span).await }));
    }
    let end = Instant::now() + span;
    for node in servers.nodes().iter().cycle() {
        if Instant::now() > end {
            break;
        }
        node.process().stop()?;
        sleep(FROZEN).await;
        node.process().resume()?;
    }
    let mut holds = 0;
    for worker in workers {
        holds += worker.soon().await?;
    }
    check(&recorder.history())?;
    println!("{holds} holds in {span:?}");
    ensure(holds >= 50, format!("only {holds} holds"))
}
