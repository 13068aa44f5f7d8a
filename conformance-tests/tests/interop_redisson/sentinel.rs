//! Both behind Sentinels, before and after a failover.

use conformance_tests::foreign::{Peer, Redisson};
use conformance_tests::servers::{MASTER, RedisServer, SentinelGroup};
use conformance_tests::task::{until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::LockClient;
use lockkit_redis::RedisStore;

use crate::world::{LONG, SOON, client, take_turns};

pub(crate) async fn both_exclude_each_other_and_are_served_over_a_failover() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    group.replicates().await?;
    let mut redisson = Redisson::start_behind(&group, LONG).await?;
    let hosts = group.ports().into_iter().map(|port| ("127.0.0.1", port));
    // Redisson knows no quarantine, and our waiter does not look by itself.
    let store = RedisStore::builder().sentinel(hosts, MASTER);
    let client = client(store.quarantine(None).recheck(LONG), LONG).await?;
    let [former, present] = group.servers();
    both_kinds(&client, &mut redisson, former).await?;
    let ours = client.lock("jobs/ours")?.acquire().await?;
    redisson
        .expect("b lock plain jobs/theirs 0 -1", "got")
        .await?;
    until("the replica has both", async || {
        let both = ["EXISTS", "jobs/ours", "jobs/theirs"];
        Ok(present.ask(&both).await? == ["2"])
    })
    .await?;
    group.fail_over_as_planned().await?;
    until("Redisson is at the new master", async || {
        let lock = redisson.ask("a lock plain jobs/probe 0 -1").await?;
        let there = present.ask(&["EXISTS", "jobs/probe"]).await? == ["1"];
        if lock == "got" {
            redisson.ask("a unlock plain jobs/probe").await?;
        }
        Ok(there)
    })
    .await?;
    redisson
        .expect("a lock plain jobs/ours 0 -1", "missed")
        .await?;
    let theirs = client.lock("jobs/theirs")?;
    ensure(theirs.try_acquire().await?.is_none(), "both hold the lock")?;
    both_kinds(&client, &mut redisson, present).await?;
    ours.check()?;
    ours.release().await?;
    redisson
        .expect("a lock plain jobs/ours 0 -1", "got")
        .await?;
    redisson
        .expect("b unlock plain jobs/theirs", "done")
        .await?;
    let guard = within(SOON, theirs.acquire()).await??;
    Ok(guard.release().await?)
}

/// Both kinds of Redisson's locks.
async fn both_kinds(client: &LockClient, redisson: &mut Peer, master: &RedisServer) -> Outcome {
    for kind in ["plain", "fenced"] {
        let lock = client.lock(format!("jobs/{kind}"))?;
        take_turns(&lock, redisson, kind, master, "NUMSUB").await?;
    }
    Ok(())
}
