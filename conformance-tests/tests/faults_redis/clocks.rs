//! Nodes of a Redlock whose clocks differ by seconds. Tokens come from these clocks, and order the holds all the same.

use std::time::Duration;

use conformance_tests::checker::check;
use conformance_tests::history::Recorder;
use conformance_tests::servers::{RedisServer, RedlockServers, ServerClock};
use conformance_tests::taker::Worker;
use conformance_tests::task::{soak_length, spawn};
use conformance_tests::{Outcome, TestSuite, ensure};
use lockkit_core::{Lease, LockClient};
use lockkit_redis::{RedisStore, RedlockStore};
use tokio::time::{Instant, sleep};

use crate::world::LONG;

const CLIENTS: usize = 4;
/// How long each node is frozen.
const FROZEN: Duration = Duration::from_millis(300);

pub(crate) fn tests() -> TestSuite {
    let missing = conformance_tests::foreign::missing(RedisServer::PROGRAM);
    TestSuite::new("clocks-of-nodes", missing.or_else(ServerClock::missing))
        .test(holds_are_ordered_whichever_clocks_the_majority_has)
}

/// One node after the other is frozen, so that each majority has other clocks.
async fn holds_are_ordered_whichever_clocks_the_majority_has() -> Outcome {
    let mut clocks = Vec::new();
    for offset in ["-2", "+2", "+0", "-1", "+1"] {
        clocks.push(ServerClock::new(offset)?);
    }
    let servers = RedlockServers::with_clocks(&clocks).await?;
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
