//! Three servers, of which one is killed, frozen or cut off.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::checker::check;
use conformance_tests::history::Recorder;
use conformance_tests::loss::loss_of;
use conformance_tests::proxy::{Direction, Flow, Proxy};
use conformance_tests::servers::{Processes, ZkCommand, ZkEnsemble};
use conformance_tests::taker::Worker;
use conformance_tests::task::{acquire, spawn, until, within};
use conformance_tests::{Failure, Outcome, Server, ensure};
use lockkit_core::{Failover, LockClient};
use lockkit_zk::{ZkStore, ZkStoreBuilder};
use tokio::time::{Instant, sleep};

use crate::world::{LONG, SOON, TTL, client};

/// Time for an election: the members of the tests notice a dead leader at once.
const ELECTION: Duration = Duration::from_secs(10);

async fn of_ports(ports: &[u16], session: Duration) -> Outcome<LockClient> {
    let add = |builder: ZkStoreBuilder, port: &u16| builder.host("127.0.0.1", *port);
    let builder = ports.iter().fold(ZkStore::builder(), add);
    client(builder.session(session)).await
}

async fn of_all(ensemble: &ZkEnsemble) -> Outcome<LockClient> {
    let members = ensemble.members().iter();
    let ports: Vec<u16> = members.map(|member| member.port()).collect();
    of_ports(&ports, TTL).await
}

async fn of_one(ensemble: &ZkEnsemble, member: usize) -> Outcome<LockClient> {
    of_ports(&[ensemble.members()[member].port()], TTL).await
}

/// One holds and five wait while the leader is killed: no two at once, tokens grow, all are served.
pub(crate) async fn killed_leader_makes_no_second_holder() -> Outcome {
    let ensemble = ZkEnsemble::start(&ZkCommand::system()).await?;
    let recorder = Recorder::new();
    let holder = of_all(&ensemble).await?;
    let promised = holder.backend().capabilities().failover;
    ensure(promised == Failover::Majority, format!("{promised:?}"))?;
    let first = Worker::new(holder.lock("jobs")?, recorder.clone());
    let hold = recorder.next_hold();
    let guard = first
        .acquire(hold)
        .await
        .ok_or_else(|| Failure::new("not granted"))?;
    first.check(hold, &guard);
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let worker = Worker::new(of_all(&ensemble).await?.lock("jobs")?, recorder.clone());
        waiters.push(spawn(async move { worker.work(TTL * 4).await }));
    }
    sleep(Duration::from_millis(300)).await;
    let leader = ensemble.leader().await?;
    ensemble.members()[leader].process().kill();
    let killed = Instant::now();
    // It keeps the hold or honestly loses it.
    while killed.elapsed() < TTL && guard.check().is_ok() {
        first.check(hold, &guard);
        sleep(Duration::from_millis(20)).await;
    }
    first.release(hold, guard).await;
    let mut served = 0;
    for waiter in waiters {
        let turns = within(TTL * 5 + ELECTION, waiter.soon()).await??;
        ensure(turns > 0, "a waiter was never served")?;
        served += turns;
    }
    ensure(served >= 5, "few were served")?;
    check(&recorder.history())?;
    ensemble.members()[leader].restart().await?;
    Ok(())
}

/// A member stops in the middle of its work. Its client goes to another and keeps what it holds. If the others have lost
/// their leader and the session is short, it loses the hold before another client has it.
pub(crate) async fn client_leaves_a_frozen_member() -> Outcome {
    let ensemble = ZkEnsemble::start(&ZkCommand::system()).await?;
    let leader = ensemble.leader().await?;
    for (frozen, session) in [((leader + 1) % 3, LONG), (leader, TTL)] {
        let mut proxies = Vec::new();
        for member in ensemble.members() {
            proxies.push(Proxy::start(([127, 0, 0, 1], member.port()).into()).await?);
        }
        let ports: Vec<u16> = proxies.iter().map(|proxy| proxy.addr().port()).collect();
        let member = proxies.remove(frozen);
        // The client begins on the member that freezes.
        proxies.iter().for_each(|other| other.refuse(true));
        let holder = of_ports(&ports, session).await?.lock("jobs")?;
        let guard = holder.acquire().await?;
        let waiter = of_ports(&[ensemble.members()[(frozen + 1) % 3].port()], LONG).await?;
        let waiter = acquire(&waiter.lock("jobs")?);
        until("another waits", async || {
            let state = holder.inspect().await?;
            Ok(state.is_some_and(|state| state.waiters == Some(1)))
        })
        .await?;
        proxies.iter().for_each(|other| other.refuse(false));
        // A second try there would take half of the lease.
        member.refuse(true);
        ensemble.members()[frozen].process().stop()?;
        let token = guard.token();
        let stale = if frozen == leader {
            Some(guard)
        } else {
            until("the client goes to another member", async || {
                let left = proxies.iter().any(|other| other.counts().connections > 0);
                Ok(left && holder.inspect().await.is_ok())
            })
            .await?;
            guard.check()?;
            within(SOON, guard.release()).await??;
            None
        };
        let next = within(TTL + ELECTION + SOON, waiter.soon()).await???;
        let is_lost = stale.is_none_or(|guard| guard.check().is_err());
        ensure(is_lost, "two believe that they hold")?;
        ensure(next.token() > token, "the token did not grow")?;
        next.release().await?;
        ensemble.members()[frozen].process().resume()?;
        ensemble.members()[frozen].ready().await?;
    }
    Ok(())
}

/// The holder's server is cut off from the leader, and still answers reads for seconds. The leader
/// ends the session, and another gets the lock: the holder knows before.
pub(crate) async fn cut_off_follower_keeps_no_hold_alive() -> Outcome {
    let ensemble = Arc::new(ZkEnsemble::with_links(&ZkCommand::system()).await?);
    let leader = ensemble.leader().await?;
    let follower = (leader + 1) % 3;
    let link = ensemble.link(follower, leader);
    let link = link.ok_or_else(|| Failure::new("no link between them"))?;
    ensure(
        link.counts().connections > 0,
        "the follower came another way",
    )?;
    let holder = of_one(&ensemble, follower).await?;
    let other = of_one(&ensemble, leader).await?;
    let guard = holder.lock("jobs")?.acquire().await?;
    let waiter = acquire(&other.lock("jobs")?);
    // A few renewals.
    sleep(TTL).await;
    guard.check()?;
    let token = guard.token();
    let loss = loss_of(guard);
    for direction in [Direction::Request, Direction::Reply] {
        link.flow(direction, Flow::Hold);
    }
    let served = spawn(async move {
        let guard = waiter.soon().await??;
        Ok::<_, Failure>((Instant::now(), guard))
    });
    let (_, lost, stale) = within(TTL * 2, loss.soon()).await??;
    let (granted, next) = within(TTL * 3 + SOON, served.soon()).await???;
    link.heal();
    ensure(lost < granted, "two believed that they hold")?;
    ensure(next.token() > token, "the token did not grow")?;
    ensure(stale.check().is_err(), "a lost guard passes its check")?;
    next.release().await?;
    Ok(())
}
