//! What is done to the processes on each server, and what they may see.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::checker::{check, everyone_served, no_loss_without_a_stop};
use conformance_tests::history::{History, Op, Phase};
use conformance_tests::servers::{
    EtcdCluster, PostgresPrograms, PostgresServer, Processes, RedisCluster, RedisServer,
    RedlockServers, SentinelGroup, ZkCommand, ZkServer,
};
use conformance_tests::task::soak_length;
use conformance_tests::{Outcome, Server, ensure};
use tokio::time::{Instant, sleep};

use crate::crowd::Crowd;

/// A busy machine with more processes than processors renews within it all the same.
pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const NAMES: [&str; 3] = ["modes/1", "modes/2", "modes/3"];
pub(crate) const CLIENTS: usize = 5;
/// From one fault of the servers to the next.
const PAUSE: Duration = Duration::from_secs(5);
/// The longest that a failover takes, until the former master replicates.
const FAILOVER: Duration = Duration::from_secs(15);
/// After so long without a reply Sentinels replace a master; much sooner they replace one that is only busy.
const PATIENCE: Duration = Duration::from_secs(2);
/// At the end nothing is done to them, so that all can be served.
const QUIET: Duration = Duration::from_secs(4);

pub(crate) async fn holders_fit_on_redis() -> Outcome {
    let none: [&str; 0] = [];
    let server = RedisServer::start(&std::env::current_exe()?, none).await?;
    holders_fit(&server, &server.url()).await
}

pub(crate) async fn holders_fit_on_etcd() -> Outcome {
    let server = EtcdCluster::of(1).await?;
    holders_fit(&server, &format!("etcd://{}", server.endpoints())).await
}

pub(crate) async fn holders_fit_on_zk() -> Outcome {
    let server = ZkServer::start(&ZkCommand::system()).await?;
    let (port, ttl) = (server.port(), TTL.as_millis());
    holders_fit(&server, &format!("zk://127.0.0.1:{port}?ttl={ttl}ms")).await
}

pub(crate) async fn holders_fit_on_postgres() -> Outcome {
    let server = PostgresServer::start(&PostgresPrograms::system(), &[]).await?;
    let url = format!("{}?poll=5ms..100ms", server.url("postgres"));
    holders_fit(&server, &url).await
}

/// What is done to the servers, one thing after the other.
#[async_trait]
pub(crate) trait Faults: Sync {
    /// Makes the next one, and repairs what does not repair itself.
    async fn make(&self) -> Outcome;

    /// Whether holds may be lost meanwhile.
    fn costs_holds(&self) -> bool {
        true
    }
}

/// They are restarted.
#[async_trait]
impl<S: Server> Faults for S {
    async fn make(&self) -> Outcome {
        self.restart().await
    }
}

/// The master of a lock changes: in turn it changes places with its replica, is replaced without
/// its last writes, and gives the lock away.
pub(crate) async fn holders_fit_in_a_cluster() -> Outcome {
    let changes = Changes {
        cluster: RedisCluster::forgetful().await?,
        number: AtomicUsize::new(0),
    };
    let url = format!("{}?quarantine={}s", changes.cluster.url(), TTL.as_secs());
    holders_fit_for(soak_length(FAILOVER * 3)?, TTL, &changes, &url).await
}

#[derive(Debug)]
struct Changes {
    cluster: RedisCluster,
    /// How many there were.
    number: AtomicUsize,
}

#[async_trait]
impl Faults for Changes {
    async fn make(&self) -> Outcome {
        let (number, cluster) = (self.number.fetch_add(1, Ordering::Relaxed), &self.cluster);
        let name = NAMES[fastrand::usize(..NAMES.len())];
        let master = cluster.master_of(name).await?;
        match number % 3 {
            0 => cluster.fail_over_as_planned(master).await,
            1 => cluster.lose_writes_and_fail_over(master).await,
            _ => {
                let slot = cluster.slot_of(name).await?;
                // The master of some other slot, if not of its own.
                let mut others = (0..).map(|number| format!("{number}"));
                let target = loop {
                    let other = cluster
                        .master_of(&others.next().unwrap_or_default())
                        .await?;
                    if other != master {
                        break other;
                    }
                };
                cluster.begin_move(slot, [master, target]).await?;
                sleep(TTL / 2).await;
                cluster.end_move(slot, [master, target]).await
            }
        }
    }
}

/// The replica is promoted, in turn as planned and without the last writes.
pub(crate) async fn holders_fit_behind_sentinels() -> Outcome {
    let words = ["--appendonly", "no"].map(str::to_owned);
    let failovers = Failovers {
        group: SentinelGroup::start(&words, PATIENCE).await?,
        planned: AtomicBool::new(true),
    };
    let url = format!("{}?quarantine={}s", failovers.group.url(), TTL.as_secs());
    // With Sentinels it is longer than it is written.
    let quarantine = TTL + Duration::from_secs(5);
    holders_fit_for(soak_length(FAILOVER * 3)?, quarantine, &failovers, &url).await
}

#[derive(Debug)]
struct Failovers {
    group: SentinelGroup,
    /// The next one.
    planned: AtomicBool,
}

#[async_trait]
impl Faults for Failovers {
    async fn make(&self) -> Outcome {
        if !self.planned.fetch_not(Ordering::Relaxed) {
            return self.group.lose_writes_and_fail_over().await;
        }
        // Leases as short as these need a former master that grants nothing without its replica.
        let [master, _] = self.group.roles().await?;
        let refuse = async |count| {
            let words = ["CONFIG", "SET", "min-replicas-to-write", count];
            master.ask(&words).await.map(drop)
        };
        refuse("1").await?;
        self.group.fail_over_as_planned().await?;
        refuse("0").await
    }
}

/// Two of five nodes are away for longer than a lease: in turn they come back without their data, and frozen. A majority
/// is always well, so that nobody notices.
pub(crate) async fn holders_fit_in_a_redlock() -> Outcome {
    let nodes = Nodes {
        servers: RedlockServers::forgetful().await?,
        number: AtomicUsize::new(0),
    };
    let (nodes_at, ttl) = (nodes.servers.authority(), TTL.as_secs());
    let url = format!("redlock://{nodes_at}?quarantine={ttl}s");
    holders_fit_for(soak_length(PAUSE * 5)?, Duration::ZERO, &nodes, &url).await
}

#[derive(Debug)]
struct Nodes {
    servers: RedlockServers,
    /// How many pairs were away.
    number: AtomicUsize,
}

#[async_trait]
impl Faults for Nodes {
    async fn make(&self) -> Outcome {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (nodes, away) = (self.servers.nodes(), TTL.mul_f64(1.2));
        let pair = [0, 1].map(|next| &nodes[(number * 2 + next) % nodes.len()]);
        let processes = pair.map(RedisServer::process);
        if number.is_multiple_of(2) {
            processes.iter().for_each(|process| process.kill());
            sleep(away).await;
            processes.iter().try_for_each(|process| process.restart())?;
            for node in pair {
                Processes::ready(node).await?;
            }
        } else {
            processes.iter().try_for_each(|process| process.stop())?;
            sleep(away).await;
            processes.iter().try_for_each(|process| process.resume())?;
        }
        Ok(())
    }

    fn costs_holds(&self) -> bool {
        false
    }
}

async fn holders_fit(server: &dyn Faults, url: &str) -> Outcome {
    let span = soak_length(Duration::from_secs(10))?.max(QUIET * 2);
    holders_fit_for(span, Duration::ZERO, server, url).await
}

/// After a fault the servers grant nothing for `quarantine`.
async fn holders_fit_for(
    span: Duration,
    quarantine: Duration,
    faults: &dyn Faults,
    url: &str,
) -> Outcome {
    let modes = if url.starts_with("redlock:") { 1 } else { 4 };
    let mut crowd = Crowd::start(faults, url, span).await?;
    let start = Instant::now();
    let mut next = PAUSE / 2;
    for number in 0.. {
        if start.elapsed() > span - QUIET {
            break;
        }
        if start.elapsed() > next {
            crowd.make_fault().await?;
            next = start.elapsed() + PAUSE;
            // A failover can take until the end.
            continue;
        }
        match number % 4 {
            0 => crowd.kill().await?,
            _ => crowd.stop()?,
        }
        sleep(Duration::from_millis(fastrand::u64(100..500))).await;
        crowd.resume(false)?;
    }
    crowd.resume(true)?;
    let done = std::mem::take(&mut crowd.done);
    let history = crowd.history(span + Duration::from_secs(30)).await?;
    let (holds, losses) = (holds(&history), losses(&history));
    println!("{span:?}: {holds:?} by the number that may hold together; {done:?}; {losses} losses");
    check(&history)?;
    no_loss_without_a_stop(&history)?;
    // A waiter that was killed keeps its place for a lease at most, and what it is granted at the end of that for another.
    everyone_served(&history, quarantine + TTL * 2 + Duration::from_secs(1))?;
    ensure(holds.len() == modes, "a mode was never held")?;
    ensure(
        holds.values().all(|holds| *holds > 2),
        format!("few holds: {holds:?}"),
    )?;
    let enough = done.faults > 0 && done.kills > 0 && done.long_stops > 0;
    ensure(enough, format!("few faults: {done:?}"))
}

/// Holds by how many may hold together; exclusive ones have no number.
fn holds(history: &History) -> BTreeMap<Option<u32>, u32> {
    let mut holds = BTreeMap::new();
    for event in history.events() {
        if event.op == Op::Acquire && event.phase == Phase::Ok {
            *holds.entry(event.room).or_default() += 1;
        }
    }
    holds
}

fn losses(history: &History) -> usize {
    let lost = history.events().iter().filter(|event| event.op == Op::Lost);
    lost.count()
}
