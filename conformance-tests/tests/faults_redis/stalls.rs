//! A server that stalls and then executes what it was sent.

use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::RedisServer;
use conformance_tests::task::{acquire, soon, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::Lock;
use lockkit_redis::RedisStore;
use tokio::time::{Instant, sleep};

use crate::world::{LONG, TTL, WAYS, impatient_at, only_tokens_left};

/// Shorter than a lease, by more than a renewal takes.
const SHORT: Duration = Duration::from_millis(600);
const SOON: Duration = Duration::from_secs(5);

pub(crate) async fn short_pause_costs_no_hold() -> Outcome {
    short_stall(Stall::Pause).await
}

pub(crate) async fn short_freeze_costs_no_hold() -> Outcome {
    short_stall(Stall::Freeze).await
}

pub(crate) async fn long_pause_ends_the_hold_before_another_begins() -> Outcome {
    long_stall(Stall::Pause).await
}

pub(crate) async fn long_freeze_ends_the_hold_before_another_begins() -> Outcome {
    long_stall(Stall::Freeze).await
}

/// It may be a former primary, whose successor grants after the quarantine.
pub(crate) async fn frozen_primary_is_left_within_the_quarantine() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let quarantine = SOON;
    let store = RedisStore::builder().tcp("127.0.0.1", proxy.addr().port());
    let store = store.quarantine(quarantine).response_timeout(LONG);
    let store = store.connect().await?;
    let connections = proxy.counts().connections;
    server.process().stop()?;
    let left = until("the connection is left", async || {
        Ok(proxy.counts().connections > connections)
    });
    within(quarantine, left).await??;
    drop(store);
    server.process().resume()?;
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Stall {
    /// `CLIENT PAUSE`: the server reads and keeps what it is asked.
    Pause,
    /// `SIGSTOP`: it does nothing at all.
    Freeze,
}

impl Stall {
    /// Begins it; it ends after `span`.
    async fn stall(self, server: &RedisServer, span: Duration) -> Outcome {
        match self {
            Self::Pause => {
                let millis = span.as_millis().to_string();
                server.ask(&["CLIENT", "PAUSE", &millis, "ALL"]).await?;
                sleep(span).await;
            }
            Self::Freeze => {
                server.process().stop()?;
                sleep(span).await;
                server.process().resume()?;
            }
        }
        Ok(())
    }
}

/// The same lock in two clients.
async fn locks(server: &RedisServer, way: &str, ttl: Duration) -> Outcome<(Lock, Lock)> {
    let name = format!("jobs/{way}");
    let one = impatient_at(way, server.port(), ttl).await?;
    let other = impatient_at(way, server.port(), ttl).await?;
    Ok((one.lock(name.as_str())?, other.lock(name)?))
}

async fn short_stall(stall: Stall) -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let (holder, other) = locks(&server, way, TTL * 2).await?;
        let guard = holder.acquire().await?;
        let mut waiter = acquire(&other);
        // It is due in the middle of the stall.
        let renewal = TTL * 2 / 3;
        sleep(renewal - SHORT / 2).await;
        stall.stall(&server, SHORT).await?;
        waiter.waits_for(TTL * 2).await?;
        guard.check()?;
        guard.release().await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    only_tokens_left(&server).await
}

async fn long_stall(stall: Stall) -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let (holder, other) = locks(&server, way, TTL).await?;
        let guard = holder.acquire().await?;
        let loss = loss_of(guard);
        let waiter = acquire(&other);
        stall.stall(&server, TTL * 2).await?;
        let next = within(SOON, waiter.soon()).await???;
        let served = Instant::now();
        let (_, lost, guard) = within(SOON, loss.soon()).await??;
        ensure(lost < served, "lost after another client held")?;
        ensure(next.token() > guard.token(), "the token has not grown")?;
        next.check()?;
        next.release().await?;
    }
    only_tokens_left(&server).await
}

/// Attempts, a place in a queue and a release that were cancelled, all executed late.
pub(crate) async fn acquires_cancelled_during_a_freeze_leave_no_hold() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(impatient_at(way, server.port(), LONG).await?);
        }
        let name = format!("jobs/{way}");
        let lock = |client: usize| clients[client].lock(name.as_str());
        // Their connections are warm.
        for client in 0..4 {
            lock(client)?.acquire().await?.release().await?;
        }
        let guard = lock(0)?.acquire().await?;
        let waiter = acquire(&lock(1)?);
        server.process().stop()?;
        drop(guard);
        waiter.cancel().await;
        let tried = soon(lock(2)?.try_acquire()).await?;
        ensure(tried.is_err(), format!("{tried:?} from a frozen server"))?;
        let limit = Duration::from_millis(300);
        let waited = soon(lock(2)?.acquire_timeout(limit)).await?;
        ensure(waited.is_err(), format!("{waited:?} from a frozen server"))?;
        server.process().resume()?;
        // Within far less than the lease of what may have been granted late.
        within(SOON, lock(3)?.acquire()).await??.release().await?;
        for client in &clients {
            within(SOON, client.drain()).await?;
        }
        only_tokens_left(&server).await?;
    }
    Ok(())
}
