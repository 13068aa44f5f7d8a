//! Both in a Redis Cluster, where Redisson listens on the server of a lock alone.

use std::time::Duration;

use conformance_tests::foreign::Redisson;
use conformance_tests::servers::RedisCluster;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_redis::RedisStore;

use crate::world::{LONG, SOON, client};

pub(crate) async fn both_exclude_each_other_and_are_served() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let mut redisson = Redisson::start_in(&cluster, LONG).await?;
    let hosts = cluster
        .nodes()
        .iter()
        .map(|node| ("127.0.0.1", node.port()));
    let store = RedisStore::builder()
        .cluster(hosts)
        .ttl(LONG)
        // Our waiter does not look by itself.
        .recheck(LONG);
    let client = client(store, LONG).await?;
    // On all masters.
    for number in 0..6 {
        let kind = ["plain", "fenced"][number % 2];
        let name = format!("jobs/{number}");
        let lock = client.lock(name.as_str())?;
        let master = &cluster.nodes()[cluster.master_of(&name).await?];

        let guard = lock.acquire().await?;
        let tried = format!("a lock {kind} {name} 0 -1");
        redisson.expect(&tried, "missed").await?;
        redisson
            .send(&format!("a lock {kind} {name} -1 -1"))
            .await?;
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let listens = async || {
            let listeners = master.ask(&["PUBSUB", "SHARDNUMSUB", &channel]).await?;
            Ok(listeners[1] == "1")
        };
        until("Redisson listens", listens).await?;
        guard.release().await?;
        let answer = within(SOON, redisson.answer("a")).await??;
        ensure(answer.starts_with("got"), answer)?;

        ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
        let mut waiter = acquire(&lock);
        until("we listen", listens).await?;
        waiter.waits_for(Duration::from_millis(50)).await?;
        let unlock = format!("a unlock {kind} {name}");
        redisson.expect(&unlock, "done").await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    Ok(())
}
