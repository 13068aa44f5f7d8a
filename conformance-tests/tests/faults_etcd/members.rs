//! Clusters of three whose members die and freeze.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{spawn, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{Error, Failover, LockClient, LossReason};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::world::{LONG, SOON, TTL, builder, client_of, contenders};

/// The longest election with the timeouts of these servers, on a busy machine.
const ELECTION: Duration = Duration::from_secs(5);

/// A request without an answer goes to another member after a second. A busy machine adds to that.
const SLACK: Duration = Duration::from_secs(2);

async fn client_from(ports: Vec<u16>, ttl: Duration) -> Outcome<LockClient> {
    client_of(&builder(&ports).connect().await?, ttl)
}

/// Puts a proxy before the first member, to see who asks it.
async fn before_first(ports: &mut [u16]) -> Outcome<Proxy> {
    let proxy = Proxy::start(([127, 0, 0, 1], ports[0]).into()).await?;
    ports[0] = proxy.addr().port();
    Ok(proxy)
}

pub(crate) async fn dead_endpoint_fails_no_call() -> Outcome {
    let cluster = EtcdCluster::of(3).await?;
    let lock = client_from(cluster.ports(), LONG).await?.lock("jobs")?;
    lock.acquire().await?.release().await?;
    // The member that it is connected to, if it is not the leader: that is another test.
    let leader = cluster.leader().await?;
    let mut ports = cluster.ports();
    let follower = (leader + 1) % 3;
    ports.swap(0, follower);
    let proxy = before_first(&mut ports).await?;
    let client = client_from(ports, LONG).await?;
    let lock = client.lock("more")?;
    lock.acquire().await?.release().await?;
    ensure(proxy.counts().round_trips > 0, "it asks another member")?;
    cluster.process(follower).kill();
    for _ in 0..20 {
        let guard = lock.try_acquire().await?;
        let guard = guard.ok_or_else(|| Failure::new("it is free"))?;
        guard.release().await?;
    }
    Ok(())
}

/// One turn: when it began and ended, and its token.
type Turns = Arc<Mutex<Vec<(u64, Instant, Instant)>>>;

pub(crate) async fn killed_leader_keeps_order() -> Outcome {
    let cluster = EtcdCluster::of(3).await?;
    let leader = cluster.leader().await?;
    let mut asker = cluster.client().await?;
    let holder = client_from(cluster.ports(), TTL).await?;
    let promised = holder.backend().capabilities().failover;
    ensure(promised == Failover::Majority, format!("{promised:?}"))?;
    let guard = holder.lock("jobs")?.acquire().await?;
    let first = guard.token().get();
    let turns: Turns = Arc::default();
    let mut waiters = Vec::new();
    for shift in 0..5 {
        let mut ports = cluster.ports();
        ports.rotate_left(shift % 3);
        let lock = client_from(ports, TTL).await?.lock("jobs")?;
        let turns = Arc::clone(&turns);
        waiters.push(spawn(async move {
            let guard = lock.acquire().await?;
            let began = Instant::now();
            sleep(Duration::from_millis(50)).await;
            // What a holder may still trust at the end of its turn.
            let standing = guard.check().is_ok();
            let ended = Instant::now();
            let token = guard.token().get();
            drop(guard);
            if standing {
                turns.lock().await.push((token, began, ended));
            }
            Ok::<_, Error>(())
        }));
    }
    contenders(&mut asker, 6).await?;
    cluster.process(leader).kill();
    let killed = Instant::now();
    // The next leader answers.
    drop(cluster.client().await?);
    let elected = Instant::now();
    sleep((killed + Duration::from_secs(1)).saturating_duration_since(elected)).await;
    let kept_until = if guard.check().is_ok() {
        // It kept the lock during the election, so that no other client had a turn.
        ensure(turns.lock().await.is_empty(), "two hold at once")?;
        let now = Instant::now();
        drop(within(SOON, guard.release()).await?);
        now
    } else {
        killed
    };
    for waiter in waiters {
        within(TTL + ELECTION + SOON, waiter.soon()).await???;
    }
    let mut turns = turns.lock().await.clone();
    turns.sort();
    let served = turns.iter().map(|(_, began, _)| *began).min();
    let served = served.ok_or_else(|| Failure::new("no client had a turn"))?;
    served_in_time(served - killed, elected - killed)?;
    let mut before = (first, kept_until);
    for (token, began, ended) in turns {
        ensure(token > before.0, "a token was given twice")?;
        ensure(began >= before.1, "two held at once")?;
        before = (token, ended);
    }
    Ok(())
}

/// The next leader restarts all leases.
fn served_in_time(waited: Duration, election: Duration) -> Outcome {
    ensure(
        waited <= TTL + election + SLACK,
        format!("served after {waited:?}, elected after {election:?}"),
    )
}

pub(crate) async fn avoids_frozen_member() -> Outcome {
    let cluster = EtcdCluster::of(3).await?;
    let leader = cluster.leader().await?;
    let follower = (leader + 1) % 3;
    let mut ports = cluster.ports();
    ports.swap(0, follower);
    let proxy = before_first(&mut ports).await?;
    let client = client_from(ports.clone(), Duration::from_secs(5)).await?;
    let guard = client.lock("held")?.acquire().await?;
    let asked = proxy.counts().round_trips;
    ensure(asked > 0, "it asks another member")?;
    cluster.process(follower).stop()?;
    let other = client.lock("other")?;
    within(SOON, other.acquire()).await??.release().await?;
    // A client that begins now finds another member too.
    let new = within(SOON, client_from(ports, LONG)).await??;
    within(SOON, new.lock("new")?.acquire())
        .await??
        .release()
        .await?;
    sleep(Duration::from_secs(6)).await;
    guard.check()?;
    cluster.process(follower).resume()?;
    guard.release().await?;
    Ok(())
}

/// It may answer requests before it knows that it is no longer the leader.
pub(crate) async fn returning_leader_grants_nothing_twice() -> Outcome {
    let cluster = EtcdCluster::of(3).await?;
    let leader = cluster.leader().await?;
    let mut ports = cluster.ports();
    ports.swap(0, leader);
    let guard = client_from(vec![ports[0]], TTL)
        .await?
        .lock("jobs")?
        .acquire()
        .await?;
    let lock = client_from(ports.split_off(1), TTL).await?.lock("jobs")?;
    let others = lock.clone();
    let waiter = spawn(async move {
        let guard = others.acquire().await?;
        Ok::<_, Error>((guard.token(), Instant::now(), guard))
    });
    sleep(Duration::from_millis(300)).await;
    cluster.process(leader).stop()?;
    // It is connected to the frozen one only, and knows by its own clock when to stop.
    within(SOON, guard.lost()).await?;
    let lost = Instant::now();
    let (token, granted, next) = within(TTL + ELECTION + SOON, waiter.soon()).await???;
    cluster.process(leader).resume()?;
    ensure(token > guard.token(), "the token did not grow")?;
    ensure(granted >= lost, "two held at once")?;
    sleep(Duration::from_millis(500)).await;
    ensure(guard.check().is_err(), "a lost hold came back")?;
    match next.check() {
        Ok(()) => next.release().await?,
        // Before 3.4.31 and 3.5.13 a leader that was stuck may revoke leases that live. The holder is
        // notified.
        Err(Error::Lost {
            reason: LossReason::SessionEnded | LossReason::Superseded,
            ..
        }) => {}
        Err(error) => return Err(error.into()),
    }
    let last = within(SOON, lock.acquire()).await??;
    ensure(last.token() > token, "the token did not grow")?;
    last.release().await?;
    Ok(())
}
