//! A server that loses its data, or may no longer write any.

use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::servers::RedisServer;
use conformance_tests::task::{Task, acquire, spawn, until, within};
use conformance_tests::{Failure, Outcome, Server, ensure};
use lockkit_core::{Error, Guard, Lock, LossReason, Outcome as Effect};
use tokio::time::sleep;

use crate::world::{Section, TTL, WAYS, client_at, locks, only_tokens_left};

/// The time that a busy machine or a new connection adds.
const SOON: Duration = Duration::from_secs(5);

type Waiter = Task<lockkit_core::Result<Guard>>;

pub(crate) async fn flushall_is_a_loss_and_tokens_still_grow() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let (guard, waiter) = held_and_awaited(&server, way).await?;
        server.ask(&["FLUSHALL"]).await?;
        forgotten(guard, waiter).await?;
    }
    only_tokens_left(&server).await
}

pub(crate) async fn restart_without_data_is_a_loss_and_tokens_still_grow() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let (guard, waiter) = held_and_awaited(&server, way).await?;
        server.restart().await?;
        forgotten(guard, waiter).await?;
    }
    only_tokens_left(&server).await
}

pub(crate) async fn restart_with_data_keeps_holds_and_queue() -> Outcome {
    let none: [&str; 0] = [];
    let server = RedisServer::start(&std::env::current_exe()?, none).await?;
    for way in WAYS {
        let of = locks(&server, way, Duration::from_secs(6), 2).await?;
        let guard = of[0].acquire().await?;
        let mut waiter = acquire(&of[1]);
        asked(&server, way).await?;
        server.restart().await?;
        // Longer than a recheck of the waiter and a renewal of the holder.
        waiter.waits_for(Duration::from_secs(3)).await?;
        guard.check()?;
        guard.release().await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    only_tokens_left(&server).await
}

pub(crate) async fn full_server_keeps_its_holds_and_serves_later() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let of = locks(&server, way, TTL, 2).await?;
        let other = client_at(way, server.port(), TTL).await?;
        let free = other.lock("jobs/free")?;
        let guard = of[0].acquire().await?;
        let reader = other.rw_lock("jobs/read")?.read().acquire().await?;
        let waiter = acquire(&of[1]);
        asked(&server, way).await?;
        server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await?;
        let (refused, ()) = tokio::join!(free.try_acquire(), sleep(TTL * 2));
        let Err(Error::Backend(refused)) = refused else {
            return Err(Failure::new(format!("{refused:?} from a full server")));
        };
        let unavailable = refused.outcome() == Effect::Unavailable;
        ensure(unavailable, format!("{refused:?}"))?;
        let written = server.ask(&["EXISTS", "jobs/free"]).await?;
        ensure(written == ["0"], "a refused try has written")?;
        for guard in [guard, reader] {
            guard.check()?;
            guard.release().await?;
        }
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await?;
        // The waiter may have got the server's refusal; then it tries again.
        let guard = match within(SOON, waiter.soon()).await?? {
            Ok(guard) => guard,
            Err(Error::Backend(_)) => of[1].acquire().await?,
            Err(other) => return Err(other.into()),
        };
        guard.release().await?;
    }
    only_tokens_left(&server).await
}

pub(crate) async fn server_that_became_a_replica_ends_holds_in_time() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let of = locks(&server, way, TTL, 2).await?;
        let guard = of[0].acquire().await?;
        let lost = spawn(guard.lost());
        server.ask(&["REPLICAOF", "127.0.0.1", "1"]).await?;
        // No renewal was written later that counts.
        sleep(TTL).await;
        ensure(guard.check().is_err(), "it outlives its lease")?;
        within(RACE, lost.soon()).await??;
        let waiter = acquire(&of[1]);
        server.ask(&["REPLICAOF", "NO", "ONE"]).await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    only_tokens_left(&server).await
}

/// The time that a busy machine may add to the report of a loss.
const RACE: Duration = Duration::from_millis(500);

async fn held_and_awaited(server: &RedisServer, way: &str) -> Outcome<(Guard, (Lock, Waiter))> {
    let of = locks(server, way, TTL, 2).await?;
    let guard = of[0].acquire().await?;
    let waiter = acquire(&of[1]);
    asked(server, way).await?;
    Ok((guard, (of[1].clone(), waiter)))
}

/// Waits until the waiter has asked once.
async fn asked(server: &RedisServer, way: &str) -> Outcome {
    let before = server.calls("evalsha").await?;
    let queue = format!("lockkit_queue:{{jobs/{way}}}");
    until("the waiter has asked", async || {
        let queued: u64 = server.run(&["LLEN", &queue]).await?;
        Ok(queued > 0 || server.calls("evalsha").await? > before + 1)
    })
    .await
}

/// The hold is gone at the server: its holder gets a loss, the waiter is served, tokens grow.
async fn forgotten(guard: Guard, (lock, waiter): (Lock, Waiter)) -> Outcome {
    let before = guard.token();
    let (reason, _, guard) = within(SOON, loss_of(guard).soon()).await??;
    let told = matches!(reason, LossReason::Superseded | LossReason::Expired);
    ensure(told, format!("lost because {reason}"))?;
    ensure(guard.check().is_err(), "a lost guard passes its check")?;
    let next = within(SOON, waiter.soon()).await???;
    let grown = next.token() > before;
    ensure(grown, format!("{} after {before}", next.token()))?;
    next.release().await?;
    Section::default().share(&[lock], 3).await
}
