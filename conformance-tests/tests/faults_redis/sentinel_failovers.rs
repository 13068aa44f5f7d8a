//! Failovers behind Sentinels: with many holds, with a client that is frozen, and with Sentinels that lag behind.

use std::path::Path;
use std::time::Duration;

use conformance_tests::history::{Op, Phase};
use conformance_tests::servers::{FakeSentinel, MASTER, RedisServer, SentinelGroup};
use conformance_tests::taker::Taker;
use conformance_tests::task::{soon, until, within};
use conformance_tests::{Outcome, TestSuite, ensure};
use lockkit_core::{Guard, LockClient, LossReason};
use tokio::time::{Instant, sleep};

use crate::quarantine::{behind, client_for, granted_at};
use crate::sentinel::promoted;
use crate::world::{client_of, store};

/// The lease and the quarantine of the test with many holds: longer than a failover takes on a busy machine.
const TTL: Duration = Duration::from_secs(9);
/// Those of a client that is frozen.
const SHORT: Duration = Duration::from_secs(3);
const NAME: &str = "jobs/sentinel";

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(thousand_holds_go_on_if_the_new_master_has_them)
        .test(client_frozen_during_a_failover_sees_its_loss_first)
        .test(two_sentinels_that_lag_behind_hide_no_failover)
}

async fn hold(client: &LockClient, part: &str, count: usize) -> Outcome<Vec<Guard>> {
    let mut guards = Vec::new();
    for number in 0..count {
        let lock = client.lock(format!("{part}/{number}"))?;
        guards.push(lock.acquire().await?);
    }
    Ok(guards)
}

/// The others are lost by their next renewal, and granted to nobody before they are.
async fn thousand_holds_go_on_if_the_new_master_has_them() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let [_, replica] = group.servers();
    let client = client_of(behind(&group, "fifo").ttl(TTL).connect().await?, TTL)?;
    let kept = hold(&client, "kept", 1000).await?;
    group.freeze_replica().await?;
    let lost = hold(&client, "lost", 200).await?;
    let other = client_for(behind(&group, "fifo"), TTL).await?;
    group.fail_over()?;
    promoted(replica).await?;
    let (lock, last) = (other.lock("lost/0")?, lost[0].token());
    let lost_first = until("the first one is lost", async || {
        let held = lost[0].check().is_ok();
        let again = lock.try_acquire().await.ok().flatten();
        ensure(!(held && again.is_some()), "two hold the lock")?;
        Ok(!held)
    });
    lost_first.await?;
    for guard in lost {
        let reason = within(TTL, guard.lost()).await?;
        let told = matches!(reason, LossReason::Superseded | LossReason::Expired);
        ensure(told, format!("lost because {reason}"))?;
        ensure(guard.check().is_err(), "a lost guard passes its check")?;
    }
    // Longer than what was left of any lease when the master died.
    sleep(TTL).await;
    let gone = kept.iter().filter(|guard| guard.check().is_err()).count();
    ensure(gone == 0, format!("{gone} holds were lost"))?;
    let there: usize = replica.ask(&["DBSIZE"]).await?.concat().parse()?;
    ensure(there > 2 * kept.len(), format!("{there} keys"))?;
    for guard in kept {
        guard.release().await?;
    }
    let again = within(TTL * 2, lock.acquire()).await??;
    ensure(again.token() > last, "the token has not grown")?;
    Ok(again.release().await?)
}

/// Its master is killed without the hold, or frozen together with it and thaws in the same moment.
async fn client_frozen_during_a_failover_sees_its_loss_first() -> Outcome {
    let program = Path::new(env!("CARGO_BIN_EXE_lock-taker"));
    for killed in [true, false] {
        let group = SentinelGroup::forgetful().await?;
        let [master, replica] = group.servers();
        let url = format!("{}?ttl={}ms", group.url(), SHORT.as_millis());
        let other = client_for(behind(&group, "fifo"), SHORT).await?;
        let mut taker = Taker::start(program, &url, SHORT).await?;
        if killed {
            group.freeze_replica().await?;
        }
        let token = taker.acquire(NAME).await?;
        taker.stop()?;
        match killed {
            true => group.fail_over()?,
            false => master.process().stop()?,
        }
        promoted(replica).await?;
        let next = granted_at(&other, NAME).await?;
        ensure(next.token().get() > token, "the token has not grown")?;
        if !killed {
            master.process().resume()?;
        }
        taker.resume()?;
        let seen = taker.run("check").await?;
        ensure(seen.phase == Phase::Fail, "two processes believe they hold")?;
        let released = taker.run("release").await?;
        let refused = released.op == Op::Release && released.phase == Phase::Fail;
        ensure(refused, released.line())?;
        next.check()?;
        next.release().await?;
    }
    Ok(())
}

/// They are the majority, and the first to answer.
async fn two_sentinels_that_lag_behind_hide_no_failover() -> Outcome {
    let (old, new) = (
        RedisServer::forgetful().await?,
        RedisServer::forgetful().await?,
    );
    let at = |server: &RedisServer| ([127, 0, 0, 1], server.port()).into();
    let mut sentinels = Vec::new();
    for pause in [0, 0, 20].map(Duration::from_millis) {
        sentinels.push(FakeSentinel::naming(at(&old), 1, pause).await?);
    }
    let hosts = || sentinels.iter().map(|it| ("127.0.0.1", it.port()));
    let store = || store("fifo", 0).quarantine(None).sentinel(hosts(), MASTER);
    let client = client_of(store().connect().await?, TTL)?;
    client.lock(NAME)?.acquire().await?.release().await?;
    sentinels[2].name(at(&new), 2);
    let failed_over = Instant::now();
    until("the client is at the new master", async || {
        Ok(new.calls("role").await? == 1)
    })
    .await?;
    let took = failed_over.elapsed();
    println!("followed after {took:?}");
    let guard = client.lock(NAME)?.acquire().await?;
    // It may believe the first two for a while.
    let newcomer = client_of(soon(store().connect()).await??, TTL)?;
    until("another client is at the new master", async || {
        Ok(new.calls("role").await? == 2)
    })
    .await?;
    let tried = newcomer.lock(NAME)?.try_acquire().await?;
    ensure(tried.is_none(), "two hold the lock")?;
    guard.release().await?;
    newcomer.lock(NAME)?.acquire().await?.release().await?;
    Ok(())
}
