//! Connections that are killed, scripts that are forgotten, and what stays behind.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::proxy::{Direction, Flow, Proxy};
use conformance_tests::servers::RedisServer;
use conformance_tests::task::{acquire, elsewhere, spawn, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_redis::{Command, Fenced, FencedError};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::world::{
    LONG, Section, TTL, Turns, WAYS, client_at, client_of, locks, only_tokens_left, store,
};

pub(crate) async fn killed_connections_lose_neither_holds_nor_waiters() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let kept = client_at(way, server.port(), TTL * 4).await?;
        let kept = kept.lock(format!("kept/{way}"))?.acquire().await?;
        let turns = Turns::begin(locks(&server, way, LONG, 4).await?);
        for _ in 0..10 {
            for kind in ["normal", "pubsub"] {
                server.ask(&["CLIENT", "KILL", "TYPE", kind]).await?;
            }
            turns.another().await?;
        }
        turns.end().await?;
        kept.check()?;
        kept.release().await?;
    }
    only_tokens_left(&server).await
}

pub(crate) async fn flushed_scripts_cause_no_error() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let of = locks(&server, way, TTL, 4).await?;
        let section = Section::default();
        let work = spawn({
            let (section, of) = (section.clone(), of.clone());
            async move { section.share(&of, 40).await }
        });
        while !work.is_finished() {
            server.ask(&["SCRIPT", "FLUSH"]).await?;
            sleep(Duration::from_millis(2)).await;
        }
        work.soon().await??;
        let errors = server.ask(&["INFO", "errorstats"]).await?;
        let met = errors
            .iter()
            .any(|line| line.contains("errorstat_NOSCRIPT"));
        ensure(met, format!("no script was missing: {errors:?}"))?;
        server.ask(&["CONFIG", "RESETSTAT"]).await?;
    }
    only_tokens_left(&server).await
}

/// Otherwise each release would be sent to all former waiters, while one client works alone.
pub(crate) async fn stops_listening_after_last_waiter() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in ["fifo", "resp2", "barging"] {
        let gone = store(way, server.port()).connect().await?;
        let waited = client_of(gone.clone(), LONG)?.lock(format!("jobs/{way}"))?;
        let lock = client_at(way, server.port(), LONG).await?;
        let lock = lock.lock(format!("jobs/{way}"))?;
        let guard = lock.acquire().await?;
        let waiter = acquire(&waited);
        until("it is heard", async || Ok(gone.counts().channels == 1)).await?;
        guard.release().await?;
        waiter.soon().await??.release().await?;
        let start = Instant::now();
        for _ in 0..40 {
            lock.acquire().await?.release().await?;
        }
        until("it is not heard", async || Ok(gone.counts().channels == 0)).await?;
        let took = start.elapsed();
        ensure(took < Duration::from_secs(4), format!("{way}: {took:?}"))?;
    }
    Ok(())
}

/// After contention, cancelled waits, killed connections and a loss, all clients go.
pub(crate) async fn only_tokens_are_left() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let tasks = Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    for way in WAYS {
        let mut clients = Vec::new();
        let mut of = Vec::new();
        for _ in 0..4 {
            let client = client_at(way, server.port(), TTL).await?;
            of.push(client.lock(format!("jobs/{way}"))?);
            clients.push(client);
        }
        Section::default().share(&of, 5).await?;
        let guard = of[0].acquire().await?;
        let limit = Duration::from_millis(50);
        let waited = of[1].acquire_timeout(limit).await;
        ensure(waited.is_err(), "both hold the lock")?;
        acquire(&of[2]).cancel().await;
        server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await?;
        server.ask(&["DEL", &format!("jobs/{way}")]).await?;
        conformance_tests::task::soon(guard.lost()).await?;
        drop(guard);
        for client in &clients {
            client.drain().await;
        }
    }
    only_tokens_left(&server).await?;
    until("all channels are left", async || {
        let channels: Vec<String> = server.run(&["PUBSUB", "CHANNELS", "*"]).await?;
        Ok(channels.is_empty())
    })
    .await?;
    until("all connections are closed", async || {
        let clients: String = server.run(&["CLIENT", "LIST"]).await?;
        // The one that asks.
        Ok(clients.lines().count() == 1)
    })
    .await?;
    until("all tasks have ended", async || {
        Ok(tasks.num_alive_tasks() <= before)
    })
    .await
}

/// The runtime of a caller ends while its request has no reply, and each time after it was perhaps the first that
/// needed a new connection. The runtime in which the store was opened has all connections.
pub(crate) async fn guarded_work_outlives_runtimes_of_callers() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let client = client_at("poll", proxy.addr().port(), LONG).await?;
    let guard = Arc::new(client.lock("jobs")?.acquire().await?);
    let work = |patience: Duration| {
        let (client, guard) = (client.clone(), Arc::clone(&guard));
        elsewhere(async move || {
            let fenced = Fenced::by(&client, &guard);
            let fenced = fenced.ok_or_else(|| Failure::new("the store is Redis"))?;
            let set = [Command::new("SET").arg("stock").arg("7")];
            let done = async {
                // A connection that was reset is no answer.
                while let Err(failed) = fenced.commands(&set).await {
                    ensure(!matches!(failed, FencedError::Fenced), "it was refused")?;
                }
                Ok::<_, Failure>(())
            };
            Ok(within(patience, done).await.is_ok_and(|it| it.is_ok()))
        })
    };
    for turn in 0..4 {
        proxy.flow(Direction::Reply, Flow::Hold);
        let replied = work(Duration::from_millis(50)).await?;
        ensure(!replied, "there was a reply")?;
        proxy.heal();
        proxy.reset();
        ensure(work(LONG).await?, format!("{turn}: no work was done"))?;
        let before = proxy.counts().connections;
        let other = client.lock("other")?;
        for _ in 0..2 {
            other.acquire().await?.release().await?;
            ensure(work(LONG).await?, format!("{turn}: no further work"))?;
        }
        let after = proxy.counts().connections;
        let ended = format!("{turn}: {before} connections became {after}");
        ensure(after == before, ended)?;
    }
    guard.check()?;
    Ok(())
}
