//! Both in a Redis Cluster, where Redisson listens on the server of a lock alone.

use conformance_tests::Outcome;
use conformance_tests::foreign::Redisson;
use conformance_tests::servers::RedisCluster;
use lockkit_redis::RedisStore;

use crate::world::{LONG, client, take_turns};

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
        take_turns(&lock, &mut redisson, kind, master, "SHARDNUMSUB").await?;
    }
    Ok(())
}
