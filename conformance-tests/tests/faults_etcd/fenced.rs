//! Guarded work: the server does it only while a hold lasts.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::history::{Op, Phase};
use conformance_tests::proxy::{Direction, Flow, Proxy};
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{elsewhere, within};
use conformance_tests::{Failure, Outcome, ensure};
use etcd_client::{Compare, CompareOp, Txn, TxnOp, TxnOpResponse};
use lockkit_etcd::{Fenced, FencedError};

use crate::world::{LONG, SOON, TTL, builder, client, client_of, taker};

/// How often a connection is lost in a test.
const ROUNDS: usize = 6;

fn put(value: &str) -> Txn {
    Txn::new().and_then([TxnOp::put("stock", value, None)])
}

pub(crate) async fn guarded_work_is_done_during_hold() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let client = client(&cluster, LONG).await?;
    let guard = client.lock("jobs")?.acquire().await?;
    let not_etcd = || Failure::new("the store is etcd");
    let fenced = Fenced::by(&client, &guard).ok_or_else(not_etcd)?;
    fenced.commit(put("7")).await?;
    // The work has a condition of its own, which fails. That is a result, and no refusal.
    let work = Txn::new()
        .when([Compare::value("stock", CompareOp::Equal, "8")])
        .and_then([TxnOp::put("stock", "9", None)])
        .or_else([TxnOp::get("stock", None)]);
    let answer = fenced.commit(work).await?;
    ensure(!answer.succeeded(), "the condition is false")?;
    match answer.op_responses().as_slice() {
        [TxnOpResponse::Get(get)] if get.kvs().first().is_some_and(|kv| kv.value() == b"7") => {}
        other => return Err(Failure::new(format!("{other:?}"))),
    }
    let (ticket, token) = (guard.ticket().clone(), guard.token());
    guard.release().await?;
    let store = client.store().ok_or_else(not_etcd)?;
    let stale = Fenced::new(store, ticket, token).commit(put("10")).await;
    ensure(
        matches!(stale, Err(FencedError::Fenced)),
        format!("{stale:?}"),
    )?;
    let kept = asker.get("stock", None).await?;
    ensure(
        kept.kvs().first().is_some_and(|kv| kv.value() == b"7"),
        "a stale holder wrote",
    )
}

/// It receives nothing for longer than its lease, as if it were frozen, and then writes.
pub(crate) async fn guarded_work_of_silent_holder_is_refused() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let server = ([127, 0, 0, 1], cluster.ports()[0]).into();
    let proxy = Proxy::start(server).await?;
    let store = builder(&[proxy.addr().port()]).connect().await?;
    let paused = client_of(&store, TTL)?;
    let guard = paused.lock("jobs")?.acquire().await?;
    let fenced = Fenced::by(&paused, &guard).ok_or_else(|| Failure::new("the store is etcd"))?;
    fenced.commit(put("old")).await?;
    for direction in [Direction::Request, Direction::Reply] {
        proxy.flow(direction, Flow::Hold);
    }
    let other = client(&cluster, TTL).await?;
    let new = within(SOON, other.lock("jobs")?.acquire()).await??;
    ensure(new.token() > guard.token(), "the token did not grow")?;
    let work = Fenced::by(&other, &new).ok_or_else(|| Failure::new("the store is etcd"))?;
    work.commit(put("new")).await?;
    proxy.heal();
    let stale = async {
        loop {
            match fenced.commit(put("stale")).await {
                // Answers may be late, and the connection may be a new one.
                Err(FencedError::Backend(_)) => {}
                answer => break answer,
            }
        }
    };
    let stale = within(SOON, stale).await?;
    ensure(
        matches!(stale, Err(FencedError::Fenced)),
        format!("{stale:?}"),
    )?;
    let kept = asker.get("stock", None).await?;
    ensure(
        kept.kvs().first().is_some_and(|kv| kv.value() == b"new"),
        "a stale holder wrote",
    )?;
    new.release().await?;
    Ok(())
}

/// A process that is frozen while it holds, for longer than its lease, writes when it resumes.
pub(crate) async fn guarded_work_of_paused_holder_is_refused() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let mut paused = taker(&cluster, TTL).await?;
    let stale = paused.acquire("jobs").await?;
    let wrote = paused.run("put").await?;
    ensure(wrote.phase == Phase::Ok, wrote.line())?;
    paused.stop()?;
    let client = client(&cluster, TTL).await?;
    let guard = within(SOON, client.lock("jobs")?.acquire()).await??;
    let token = guard.token().get();
    ensure(token > stale, "the token did not grow")?;
    let fenced = Fenced::by(&client, &guard).ok_or_else(|| Failure::new("the store is etcd"))?;
    let put = TxnOp::put("jobs/written", token.to_string(), None);
    fenced.commit(Txn::new().and_then([put])).await?;
    paused.resume()?;
    let wrote = paused.run("put").await?;
    ensure(
        wrote.op == Op::Write && wrote.phase == Phase::Fail,
        format!("not refused: {}", wrote.line()),
    )?;
    let kept = asker.get("jobs/written", None).await?;
    let kept = kept.kvs().first().map(|kv| kv.value().to_vec());
    ensure(
        kept == Some(token.to_string().into_bytes()),
        "a stale holder wrote",
    )?;
    guard.release().await?;
    Ok(())
}

/// The runtime of a caller ends while its request has no reply, and each time after it was perhaps the first that
/// needed a new connection. The runtime in which the store was opened has all connections.
pub(crate) async fn guarded_work_outlives_runtimes_of_callers() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let server = ([127, 0, 0, 1], cluster.ports()[0]).into();
    let ways = [Proxy::start(server).await?, Proxy::start(server).await?];
    let ports = ways.each_ref().map(|way| way.addr().port());
    let store = builder(&ports).connect().await?;
    let client = client_of(&store, LONG)?;
    let guard = Arc::new(client.lock("jobs")?.acquire().await?);
    let commit = |patience: Duration| {
        let (client, guard) = (client.clone(), Arc::clone(&guard));
        elsewhere(async move || {
            let fenced = Fenced::by(&client, &guard);
            let fenced = fenced.ok_or_else(|| Failure::new("the store is etcd"))?;
            let committed = async {
                // A connection that was reset is no answer.
                while let Err(failed) = fenced.commit(put("7")).await {
                    ensure(!matches!(failed, FencedError::Fenced), "it was refused")?;
                }
                Ok::<_, Failure>(())
            };
            Ok(within(patience, committed).await.is_ok_and(|it| it.is_ok()))
        })
    };
    for turn in 0..ROUNDS {
        let [old, new] = [turn % 2, (turn + 1) % 2].map(|at| &ways[at]);
        old.flow(Direction::Reply, Flow::Hold);
        let replied = commit(Duration::from_millis(50)).await?;
        ensure(!replied, "there was a reply")?;
        old.heal();
        // The next request needs a connection to another member.
        new.refuse(false);
        old.refuse(true);
        old.reset();
        ensure(commit(SOON).await?, format!("{turn}: no work was done"))?;
        let before = new.counts().connections;
        let other = client.lock("other")?;
        for _ in 0..2 {
            within(SOON, other.acquire()).await??.release().await?;
            ensure(commit(SOON).await?, format!("{turn}: no further work"))?;
        }
        let after = new.counts().connections;
        let ended = format!("{turn}: {before} connections became {after}");
        ensure(after == before, ended)?;
    }
    guard.check()?;
    Ok(())
}
