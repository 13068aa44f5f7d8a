//! Both behind Sentinels, before and after a failover.

use conformance_tests::foreign::{Peer, Redisson};
use conformance_tests::servers::{MASTER, RedisServer, SentinelGroup};
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::LockClient;
use lockkit_redis::RedisStore;

use crate::world::{LONG, SOON, client};

pub(crate) async fn both_exclude_each_other_and_are_served_over_a_failover() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    group.replicates().await?;
    let mut redisson = Redisson::start_behind(&group, LONG).await?;
    let hosts = group.ports().into_iter().map(|port| ("127.0.0.1", port));
    // Redisson knows no quarantine, and our waiter does not look by itself.
    let store = RedisStore::builder().sentinel(hosts, MASTER);
    let client = client(store.quarantine(None).recheck(LONG), LONG).await?;
    let [former, present] = group.servers();
    take_turns(&client, &mut redisson, former).await?;
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
    take_turns(&client, &mut redisson, present).await?;
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

/// Each side holds, misses and waits for the lock of the other, which wakes it.
async fn take_turns(client: &LockClient, redisson: &mut Peer, master: &RedisServer) -> Outcome {
    for kind in ["plain", "fenced"] {
        let name = format!("jobs/{kind}");
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let listens = async || {
            let listeners = master.ask(&["PUBSUB", "NUMSUB", &channel]).await?;
            Ok(listeners[1] == "1")
        };
        let lock = client.lock(name.as_str())?;
        let guard = lock.acquire().await?;
        let tried = format!("a lock {kind} {name} 0 -1");
        redisson.expect(&tried, "missed").await?;
        redisson
            .send(&format!("a lock {kind} {name} -1 -1"))
            .await?;
        until("Redisson listens", listens).await?;
        guard.release().await?;
        let answer = within(SOON, redisson.answer("a")).await??;
        ensure(answer.starts_with("got"), answer)?;

        ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
        let waiter = acquire(&lock);
        until("we listen", listens).await?;
        let unlock = format!("a unlock {kind} {name}");
        redisson.expect(&unlock, "done").await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    Ok(())
}
