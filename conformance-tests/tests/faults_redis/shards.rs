//! Releases of other programs that are announced on the sharded channel of a lock.

use std::time::Duration;

use conformance_tests::servers::RedisCluster;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};

use crate::cluster::all;
use crate::world::{LONG, client_of};

const SOON: Duration = Duration::from_secs(5);

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(sharded_message_wakes_a_waiter)
        .test(waiter_is_woken_after_a_slot_has_moved)
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

/// As another program takes the lock.
async fn hold(cluster: &RedisCluster, name: &str) -> Outcome {
    let master = &cluster.nodes()[cluster.master_of(name).await?];
    master.ask(&["HSET", name, "other:1", "1"]).await?;
    master.ask(&["EXPIRE", name, "60"]).await.map(drop)
}

async fn release(cluster: &RedisCluster, name: &str) -> Outcome {
    let master = &cluster.nodes()[cluster.master_of(name).await?];
    master.ask(&["DEL", name]).await?;
    let heard = master.ask(&["SPUBLISH", &channel(name), "0"]).await?;
    ensure(heard == ["1"], format!("{heard:?} have heard of {name}"))
}

/// Waits until somebody listens at the present master of a lock.
async fn is_heard(cluster: &RedisCluster, name: &str) -> Outcome {
    until("the channel is subscribed", async || {
        let master = &cluster.nodes()[cluster.master_of(name).await?];
        let count = ["PUBSUB", "SHARDNUMSUB", &channel(name)];
        Ok(master.ask(&count).await?[1] == "1")
    })
    .await
}

async fn sharded_message_wakes_a_waiter() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    // It does not look by itself.
    let store = all(&cluster, "fifo").quarantine(None).recheck(LONG);
    let client = client_of(store.connect().await?, LONG)?;
    for name in ["jobs/one", "jobs/two", "jobs/one"] {
        hold(&cluster, name).await?;
        let waiter = acquire(&client.lock(name)?);
        is_heard(&cluster, name).await?;
        release(&cluster, name).await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    Ok(())
}

/// The server ends the subscriptions of a slot that it gives away, and only these.
async fn waiter_is_woken_after_a_slot_has_moved() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let store = all(&cluster, "fifo").quarantine(None).recheck(LONG);
    let client = client_of(store.connect().await?, LONG)?;
    let moved = "jobs/0";
    let master = cluster.master_of(moved).await?;
    let mut stays = None;
    for number in 1..100 {
        let name = format!("jobs/{number}");
        if cluster.master_of(&name).await? == master {
            stays = Some(name);
            break;
        }
    }
    let stays = stays.ok_or_else(|| Failure::new("no other name has this master"))?;
    let names = [moved, &stays];
    let mut waiters = Vec::new();
    for name in names {
        hold(&cluster, name).await?;
        waiters.push(acquire(&client.lock(name)?));
        is_heard(&cluster, name).await?;
    }
    let (slot, to) = (cluster.slot_of(moved).await?, (master + 1) % 3);
    cluster.begin_move(slot, [master, to]).await?;
    cluster.end_move(slot, [master, to]).await?;
    for (name, waiter) in names.into_iter().zip(waiters) {
        // Before the waiter looks by itself, after a third of its lease.
        within(SOON, is_heard(&cluster, name)).await??;
        release(&cluster, name).await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    Ok(())
}
