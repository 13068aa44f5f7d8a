//! Many holds that are kept.

use std::time::Duration;

use conformance_tests::figures::{OPTIMISED, bound, processor_time};
use conformance_tests::servers::{RedisCluster, RedisServer};
use conformance_tests::task::spawn;
use conformance_tests::{Outcome, ensure};
use lockkit_core::{Guard, LockClient};
use lockkit_redis::RedisStore;
use tokio::time::{Instant, sleep};

use crate::solo::client_at;

const HOLDS: usize = 20_000;
/// The most leases that one step of the server renews.
const LARGEST: u64 = 500;
/// More than one round of renewals at the default lease of 30 s.
const SPAN: Duration = Duration::from_secs(15);

async fn hold(client: &LockClient, holds: usize) -> Outcome<Vec<Guard>> {
    let mut tasks = Vec::new();
    for part in 0..64 {
        let client = client.clone();
        tasks.push(spawn(async move {
            let mut guards = Vec::new();
            for number in (part..holds).step_by(64) {
                guards.push(client.lock(format!("held/{number}"))?.acquire().await?);
            }
            Outcome::Ok(guards)
        }));
    }
    let mut guards = Vec::new();
    for task in tasks {
        guards.extend(task.soon().await??);
    }
    Ok(guards)
}

/// The share of a processor that this process uses.
async fn share_of_span() -> Outcome<f64> {
    let (before, start) = (processor_time("self")?, Instant::now());
    sleep(SPAN).await;
    let used = processor_time("self")? - before;
    Ok(used.as_secs_f64() / start.elapsed().as_secs_f64())
}

fn lost(guards: &[Guard]) -> usize {
    guards.iter().filter(|guard| guard.check().is_err()).count()
}

pub(crate) async fn twenty_thousand_holds_are_kept_with_little_work() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let client = client_at(server.port()).await?;
    let guards = hold(&client, HOLDS).await?;
    // In microseconds: a step of the server, which serves no other client meanwhile.
    let words = ["CONFIG", "SET", "slowlog-log-slower-than", "10000"];
    server.ask(&words).await?;
    server.ask(&["SLOWLOG", "RESET"]).await?;
    let asked = async || -> Outcome<[u64; 2]> {
        Ok([
            server.calls("evalsha").await?,
            server.calls("pexpire").await?,
        ])
    };
    let [steps_before, leases_before] = asked().await?;
    let share = share_of_span().await?;
    let blocked: u64 = server.run(&["SLOWLOG", "LEN"]).await?;
    let [steps, leases] = asked().await?;
    let (steps, leases) = (steps - steps_before, leases - leases_before);
    let lost = lost(&guards);
    println!(
        "{HOLDS} holds: {:.1} % of a processor, {lost} lost, {leases} leases renewed in {steps} steps, \
         {blocked} of them longer than 10 ms",
        share * 100.0
    );
    ensure(lost == 0, format!("{lost} holds were lost"))?;
    ensure(
        leases >= u64::try_from(HOLDS)?,
        format!("only {leases} leases were renewed"),
    )?;
    ensure(
        leases <= steps * LARGEST,
        format!("{leases} leases in {steps} steps"),
    )?;
    // A busy machine may stop the server in the middle of one, and without optimisation it is busy with us.
    let stopped = if OPTIMISED { 1 } else { steps / 3 };
    ensure(
        blocked <= stopped,
        format!("{blocked} of {steps} steps blocked the server"),
    )?;
    let limit = bound(0.05, 0.5);
    ensure(share < limit, format!("{:.1} %", share * 100.0))
}

/// They are in as many slots as there are names, and a step renews those of one slot.
pub(crate) async fn ten_thousand_holds_in_a_cluster_are_kept_with_little_work() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let hosts = cluster.nodes().iter();
    let hosts = hosts.map(|node| ("127.0.0.1", node.port()));
    let store = RedisStore::builder().cluster(hosts).quarantine(None);
    let client = LockClient::new(store.connect().await?)?;
    let guards = hold(&client, HOLDS / 2).await?;
    let renewed = async || {
        let mut leases = 0;
        // The others are replicas, which repeat what these do.
        for master in &cluster.nodes()[..3] {
            leases += master.calls("pexpire").await?;
        }
        Outcome::Ok(leases)
    };
    let before = renewed().await?;
    let share = share_of_span().await?;
    let (leases, lost) = (renewed().await? - before, lost(&guards));
    println!(
        "{} holds in three masters: {:.1} % of a processor, {lost} lost, {leases} leases renewed",
        guards.len(),
        share * 100.0
    );
    ensure(lost == 0, format!("{lost} holds were lost"))?;
    ensure(
        leases >= u64::try_from(guards.len())?,
        format!("only {leases} leases were renewed"),
    )?;
    let limit = bound(0.05, 0.5);
    ensure(share < limit, format!("{:.1} %", share * 100.0))
}
