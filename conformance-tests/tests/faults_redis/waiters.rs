//! How long a dead waiter delays the others, and a lost message its waiter.

use std::path::Path;
use std::time::Duration;

use conformance_tests::servers::RedisServer;
use conformance_tests::taker::Taker;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::Lock;
use tokio::time::sleep;

use crate::world::{LONG, RECHECK, client_at};

/// Shorter than the usual recheck.
const LIMIT: Duration = Duration::from_secs(4);
const NAME: &str = "jobs/fifo";

#[derive(Clone, Copy, Debug)]
enum End {
    Killed,
    Stopped,
}

pub(crate) async fn killed_waiter_costs_three_rechecks_at_most() -> Outcome {
    dead_waiter(End::Killed).await
}

pub(crate) async fn stopped_waiter_costs_three_rechecks_at_most() -> Outcome {
    dead_waiter(End::Stopped).await
}

/// One that dies right before its turn, when its place still counts; three of them, of whom one delays the others; and
/// one that died long before.
async fn dead_waiter(end: End) -> Outcome {
    let server = RedisServer::forgetful().await?;
    for (dead, before) in [(1, Duration::ZERO), (3, Duration::ZERO), (1, RECHECK * 4)] {
        let holder = lock(&server).await?;
        let guard = holder.acquire().await?;
        let mut takers = Vec::new();
        for place in 1..=dead {
            takers.push(queued(&server, place).await?);
        }
        let waiter = acquire(&lock(&server).await?);
        in_line(&server, dead + 1).await?;
        for taker in &mut takers {
            match end {
                End::Killed => taker.kill().await?,
                End::Stopped => taker.stop()?,
            }
        }
        sleep(before).await;
        guard.release().await?;
        let (first, pushed) = (holder.inspect().await?, server.calls("publish").await?);
        let next = within(LIMIT, waiter.soon()).await???;
        let first = first.and_then(|state| state.holders.into_iter().next());
        let first = first.ok_or_else(|| Failure::new("the lock was passed to no waiter"))?;
        let what = format!("{dead} {end:?} {before:?} before the turn: {first:?}");
        let was_dead = first.id != next.holder().to_string();
        ensure(was_dead == before.is_zero(), &*what)?;
        let briefly = first.remaining.is_some_and(|left| left <= RECHECK * 3);
        ensure(briefly || !was_dead, &*what)?;
        let again = server.calls("publish").await? > pushed;
        ensure(!again, format!("then another dead one held: {what}"))?;
        next.release().await?;
    }
    Ok(())
}

pub(crate) async fn lost_message_costs_one_recheck_at_most() -> Outcome {
    let server = RedisServer::forgetful().await?;
    // No message arrives from now on.
    server
        .ask(&["ACL", "SETUSER", "default", "-publish"])
        .await?;
    let mut looks = 0;
    for round in 0..4 {
        let holder = lock(&server).await?;
        let guard = holder.acquire().await?;
        let waiter = acquire(&lock(&server).await?);
        in_line(&server, 1).await?;
        // At another point between two rechecks each time.
        sleep(RECHECK * round / 4).await;
        guard.release().await?;
        let before = server.calls("evalsha").await?;
        let next = within(LIMIT, waiter.soon()).await???;
        let after = server.calls("evalsha").await? - before;
        ensure(after <= 1, format!("granted by look {after}"))?;
        looks += after;
        next.release().await?;
    }
    ensure(looks > 0, "the message was not lost")
}

async fn lock(server: &RedisServer) -> Outcome<Lock> {
    Ok(client_at("fifo", server.port(), LONG).await?.lock(NAME)?)
}

/// A process that waits for the lock, at this place of the queue.
async fn queued(server: &RedisServer, place: usize) -> Outcome<Taker> {
    let program = Path::new(env!("CARGO_BIN_EXE_lock-taker"));
    let url = format!("{}/?recheck={}ms", server.url(), RECHECK.as_millis());
    let mut taker = Taker::start(program, &url, LONG).await?;
    taker.send(&format!("acquire {NAME}")).await?;
    in_line(server, place).await?;
    Ok(taker)
}

async fn in_line(server: &RedisServer, count: usize) -> Outcome {
    let queue = format!("lockkit_queue:{{{NAME}}}");
    until("they stand in the queue", async || {
        let queued: usize = server.run(&["LLEN", &queue]).await?;
        Ok(queued >= count)
    })
    .await
}
