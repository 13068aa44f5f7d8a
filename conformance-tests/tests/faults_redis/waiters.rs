//! How long a dead waiter delays the others, and a lost message its waiter.

use std::path::Path;
use std::time::Duration;

use conformance_tests::servers::RedisServer;
use conformance_tests::taker::Taker;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::Lock;
use tokio::time::{Instant, sleep};

use crate::world::{LONG, RECHECK, client_at};

/// The time that a busy machine may add to a wait.
const RACE: Duration = Duration::from_millis(400);
const LIMIT: Duration = Duration::from_secs(10);
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

/// One that dies right before its turn, when its place still counts, and two of whom one died long
/// before.
async fn dead_waiter(end: End) -> Outcome {
    let server = RedisServer::forgetful().await?;
    let mut worst = Duration::ZERO;
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
        let released = Instant::now();
        guard.release().await?;
        let next = within(LIMIT, waiter.soon()).await???;
        let took = released.elapsed();
        println!(
            "{dead} waiting, {end:?} {before:?} before the turn: {took:?} of a recheck of {RECHECK:?}"
        );
        next.release().await?;
        let most = if before.is_zero() {
            RECHECK * 3
        } else {
            Duration::ZERO
        };
        ensure(took <= most + RACE, format!("{took:?} of {most:?}"))?;
        worst = worst.max(took);
    }
    // Otherwise no waiter was dead at the hand-over.
    ensure(worst > RECHECK, format!("only {worst:?}"))
}

pub(crate) async fn lost_message_costs_one_recheck_at_most() -> Outcome {
    let server = RedisServer::forgetful().await?;
    // No message arrives from now on.
    server
        .ask(&["ACL", "SETUSER", "default", "-publish"])
        .await?;
    let mut worst = Duration::ZERO;
    for round in 0..4 {
        let holder = lock(&server).await?;
        let guard = holder.acquire().await?;
        let waiter = acquire(&lock(&server).await?);
        in_line(&server, 1).await?;
        // At another point between two rechecks each time.
        sleep(RECHECK * round / 4).await;
        let released = Instant::now();
        guard.release().await?;
        let next = within(LIMIT, waiter.soon()).await???;
        worst = worst.max(released.elapsed());
        next.release().await?;
    }
    println!("a lost message: {worst:?} of a recheck of {RECHECK:?}");
    ensure(worst <= RECHECK + RACE, format!("{worst:?}"))?;
    ensure(worst > RECHECK / 4, "the message was not lost")
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
