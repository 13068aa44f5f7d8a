//! Sessions that are killed, by an administrator, by the death of their process or for being idle.

use std::time::Duration;

use conformance_tests::proxy::{Direction, Flow, Proxy};
use conformance_tests::taker::Taker;
use conformance_tests::task::{acquire, soon, spawn, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::LockClient;

use lockkit_sql::PostgresStore;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::world::{
    Database, LONG, Postgres, SOON, Section, TTL, WAYS, client, locks, loss_of, only_rows_left,
    taker,
};

pub(crate) async fn killed_sessions_lose_neither_leases_nor_waiters<D: Database>() -> Outcome {
    let server = D::start().await?;
    let of = locks(&server, "lease", LONG, 4).await?;
    let section = Section::default();
    let guard = client(&server, "lease", LONG)
        .await?
        .lock("kept")?
        .acquire()
        .await?;
    let work = spawn({
        let (section, of) = (section.clone(), of.clone());
        async move { section.share(&of, 40).await }
    });
    for _ in 0..10 {
        server.kill_sessions().await?;
        sleep(Duration::from_millis(60)).await;
    }
    work.soon().await??;
    guard.check()?;
    guard.release().await?;
    only_rows_left(&server).await
}

pub(crate) async fn a_killed_pin_is_a_loss_at_once<D: Database>() -> Outcome {
    let server = D::start().await?;
    for waiting in WAYS {
        // Both have the name of the first.
        let holder = client(&server, "pin", LONG).await?.lock("jobs")?;
        let other = client(&server, waiting, LONG).await?.lock("jobs")?;
        let guard = holder.acquire().await?;
        let mut waiter = acquire(&other);
        waiter.waits_for(Duration::from_millis(300)).await?;
        let killed = Instant::now();
        let loss = loss_of(guard);
        server.kill_pins().await?;
        let (_, lost, guard) = within(SOON, loss.soon()).await??;
        let took = lost - killed;
        ensure(
            took < Duration::from_secs(2),
            format!("told after {took:?}"),
        )?;
        ensure(guard.check().is_err(), "a lost guard passes its check")?;
        let next = within(SOON, waiter.soon()).await???;
        ensure(next.token() > guard.token(), "the token has not grown")?;
        drop(guard);
        sleep(Duration::from_millis(100)).await;
        next.check()?;
        next.release().await?;
    }
    only_rows_left(&server).await
}

/// Nobody answers the release, and its session is ended before it has heard of it.
pub(crate) async fn a_release_that_ends_with_its_pin_is_none() -> Outcome {
    let server = Postgres::start().await?;
    let way = Proxy::start(([127, 0, 0, 1], server.options().get_port()).into()).await?;
    let options = server.options().port(way.addr().port());
    let store = PostgresStore::builder(options).pin(true).connect().await?;
    let guard = LockClient::new(store)?.lock("jobs")?.acquire().await?;
    for direction in [Direction::Request, Direction::Reply] {
        way.flow(direction, Flow::Hold);
    }
    let mut release = spawn(guard.release());
    release.waits_for(Duration::from_millis(100)).await?;
    server.kill_pins().await?;
    let other = client(&server, "pin", LONG).await?.lock("jobs")?;
    let next = within(SOON, other.acquire()).await??;
    way.reset();
    way.heal();
    let released = within(SOON, release.soon()).await??;
    ensure(released.is_err(), "what was ended before was released")?;
    next.check()?;
    next.release().await?;
    only_rows_left(&server).await
}

pub(crate) async fn the_lock_of_a_killed_process_is_free_at_once<D: Database>() -> Outcome {
    let server = D::start().await?;
    let url = server.url("pin=true");
    let other = client(&server, "lease", LONG).await?.lock("jobs")?;
    drop(other.try_acquire().await?);
    for _ in 0..3 {
        let mut taker = Taker::start(&taker(), &url, LONG).await?;
        let token = taker.acquire("jobs").await?;
        let mut waiter = acquire(&other);
        waiter.waits_for(Duration::from_millis(200)).await?;
        taker.kill().await?;
        let killed = Instant::now();
        let next = within(SOON, waiter.soon()).await???;
        let took = killed.elapsed();
        ensure(
            took < Duration::from_secs(2),
            format!("free after {took:?}"),
        )?;
        ensure(next.token().get() > token, "the token has not grown")?;
        next.release().await?;
    }
    only_rows_left(&server).await
}

/// A server that ends whatever is idle, long before a lease ends.
pub(crate) async fn idle_killers_cost_no_hold<D: Database>() -> Outcome {
    let server = D::start().await?;
    server.run(D::KILLS_THE_IDLE).await?;
    for way in WAYS {
        let of = locks(&server, way, Duration::from_secs(6), 2).await?;
        let guard = of[0].acquire().await?;
        let mut waiter = acquire(&of[1]);
        waiter.waits_for(Duration::from_secs(3)).await?;
        guard.check()?;
        guard.release().await?;
        within(SOON, waiter.soon()).await???.release().await?;
        sleep(Duration::from_millis(1500)).await;
        of[0].acquire().await?.release().await?;
    }
    only_rows_left(&server).await
}

/// After contention, cancelled waits, killed sessions and a loss, all clients go.
pub(crate) async fn nothing_is_left_but_rows<D: Database>() -> Outcome {
    let server = D::start().await?;
    let tasks = Handle::current().metrics();
    let before = tasks.num_alive_tasks();
    for way in WAYS {
        let mut clients = Vec::new();
        let mut of = Vec::new();
        for _ in 0..4 {
            let client = client(&server, way, TTL).await?;
            of.push(client.lock(format!("jobs/{way}"))?);
            clients.push(client);
        }
        Section::default().share(&of, 5).await?;
        let guard = of[0].acquire().await?;
        let waited = of[1].acquire_timeout(Duration::from_millis(50)).await;
        ensure(waited.is_err(), "both hold the lock")?;
        acquire(&of[2]).cancel().await;
        server.kill_sessions().await?;
        // The first word may meet a session that was killed.
        let broken = until("the lock is broken", async || {
            Ok(of[3].break_lock().await.is_ok())
        });
        broken.await?;
        soon(guard.lost()).await?;
        drop(guard);
        for client in &clients {
            client.drain().await;
        }
    }
    only_rows_left(&server).await?;
    until("all sessions are closed", async || {
        Ok(server.sessions().await? == 0)
    })
    .await?;
    until("all tasks have ended", async || {
        Ok(tasks.num_alive_tasks() <= before)
    })
    .await
}
