//! Limits of the pool, of time, and of what the server lets be written.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::task::{Task, acquire, soon, spawn, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::backend::{Attempt, Release, Ticket};
use lockkit_core::{
    BackendError, ClientId, DistributedLock as _, Error, Guard, HolderId, Lease, LockClient,
    LockName, Outcome as Told,
};
use lockkit_sql::{Problem, Source, SqlFault, SqlStore};
use tokio::time::sleep;

use crate::world::{
    Database, LONG, Maria, SOON, Section, TTL, WAYS, builder, client, locks, only_rows_left,
};

/// A stranger has a row locked for so long.
fn lock_row<D: Database>(server: &Arc<D>, name: &str, span: Duration) -> Task<Outcome> {
    let (server, locked) = (Arc::clone(server), D::row_lock(name, span));
    spawn(async move { server.run(&locked).await })
}

/// What is wrong, as a program reads it from the error.
fn problem(tried: lockkit_core::Result<Option<Guard>>) -> Outcome<Problem> {
    let error = match tried {
        Err(Error::Backend(error)) => error,
        other => return Err(Failure::new(format!("{other:?}"))),
    };
    let fault = error.source().and_then(|it| it.downcast_ref::<SqlFault>());
    let fault = fault.ok_or_else(|| Failure::new(format!("without a source: {error:?}")))?;
    Ok(fault.problem())
}

pub(crate) async fn an_exhausted_pool_is_told_and_heals<D: Database>() -> Outcome {
    let server = D::start().await?;
    // Sooner than a request of the client.
    let pool = server.pool_waiting(2, Duration::from_millis(300)).await?;
    let store = SqlStore::<D::Dialect>::builder(Source::Application(pool.clone()));
    let store = store.connect().await?;
    let client = LockClient::builder(store)
        .lease(Lease::renewed(Duration::from_secs(6)))
        .timeout(Duration::from_secs(1))
        .build()?;
    let guard = client.lock("kept")?.acquire().await?;
    let lock = client.lock("jobs")?;
    let taken = (pool.acquire().await?, pool.acquire().await?);
    let tried = soon(lock.try_acquire()).await?;
    let told = problem(tried)?;
    ensure(told == Problem::Limit, format!("{told:?}"))?;
    let mut waiter = acquire(&lock);
    waiter.waits_for(Duration::from_secs(2)).await?;
    drop(taken);
    within(SOON, waiter.soon()).await???.release().await?;
    guard.check()?;
    guard.release().await?;
    only_rows_left(&server).await
}

/// Renewals of fifty holds, of which one has its row locked by somebody else.
pub(crate) async fn a_locked_row_delays_no_other<D: Database>() -> Outcome {
    let server = D::start().await?;
    let client = client(&server, "lease", TTL).await?;
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(client.lock(format!("held/{number}"))?.acquire().await?);
    }
    let server = Arc::new(server);
    let foreign = lock_row(&server, "held/7", TTL * 3);
    sleep(TTL * 2).await;
    for (number, guard) in guards.iter().enumerate() {
        if number != 7 {
            guard.check()?;
        }
    }
    ensure(
        guards[7].check().is_err(),
        "a lease that nobody could renew stands",
    )?;
    // Neither does an attempt wait for the row, nor a new name.
    let other = crate::world::client(&*server, "lease", TTL).await?;
    let tried = within(Duration::from_secs(1), other.lock("held/7")?.try_acquire()).await??;
    ensure(tried.is_none(), "taken although its row is locked")?;
    let fresh = within(Duration::from_secs(1), other.lock("held/50")?.acquire()).await??;
    fresh.release().await?;
    foreign.soon().await??;
    // The row still names the hold that could not be released; the next one takes it over.
    within(SOON, other.lock("held/7")?.acquire())
        .await??
        .release()
        .await?;
    let errors = server.errors().await?;
    ensure(errors.is_empty(), format!("{errors:?}"))?;
    for guard in guards {
        drop(guard.release().await);
    }
    client.drain().await;
    only_rows_left(&*server).await
}

/// A stranger has the row of a hold locked when it is released.
pub(crate) async fn a_release_waits_for_no_locked_row<D: Database>() -> Outcome {
    let server = Arc::new(D::start().await?);
    let store = builder(&*server, "lease").connect().await?;
    let holder = HolderId::new(ClientId::random(), 1);
    let ticket = Ticket::new(LockName::new("jobs")?, holder, LONG);
    store.attempt(&ticket).await?;
    let foreign = lock_row(&server, "jobs", TTL);
    sleep(TTL / 3).await;
    let released = within(TTL / 3, store.release(&ticket)).await?;
    let told = released.err().map(|error| error.outcome());
    ensure(told == Some(Told::Unavailable), format!("{told:?}"))?;
    foreign.soon().await??;
    let released = store.release(&ticket).await?;
    ensure(released == Release::Released, "it did not hold any more")?;
    let errors = server.errors().await?;
    ensure(errors.is_empty(), format!("{errors:?}"))?;
    drop(store);
    only_rows_left(&*server).await
}

fn held(answer: Result<Attempt, BackendError>) -> Outcome {
    let answer = answer?;
    let held = matches!(answer, Attempt::Held { .. });
    ensure(held, format!("{answer:?}"))
}

/// Who was given a lock each time that it asked does not pass over its row while that is locked, but waits
/// for it, a second at most. A mere try does not, nor does whoever asks again.
pub(crate) async fn a_calm_lock_waits_a_moment_for_its_row() -> Outcome {
    const MOMENT: Duration = Duration::from_millis(500);
    let server = Arc::new(Maria::start().await?);
    let store = builder(&*server, "lease").connect().await?;
    let ticket = |number| -> Outcome<Ticket> {
        let holder = HolderId::new(ClientId::random(), number);
        Ok(Ticket::new(LockName::new("jobs")?, holder, LONG))
    };
    let calm = async || -> Outcome {
        for number in 0..6 {
            let ticket = ticket(number)?;
            store.attempt(&ticket).await?;
            store.release(&ticket).await?;
        }
        Ok(())
    };
    let lock_row = async |span| {
        let foreign = lock_row(&server, "jobs", span);
        sleep(MOMENT / 2).await;
        foreign
    };
    calm().await?;
    let hold = ticket(7)?;
    store.attempt(&hold).await?;
    let foreign = lock_row(MOMENT).await;
    let released = within(MOMENT, store.release(&hold)).await??;
    ensure(released == Release::Released, "it did not hold any more")?;
    foreign.soon().await??;
    calm().await?;
    let foreign = lock_row(TTL).await;
    let tried = ticket(8)?.with_enqueue(false);
    let waits = within(MOMENT, store.attempt(&ticket(9)?)).await;
    ensure(waits.is_err(), "it did not wait")?;
    for other in [tried, ticket(10)?] {
        held(within(MOMENT, store.attempt(&other)).await?)?;
    }
    foreign.soon().await??;
    calm().await?;
    let foreign = lock_row(TTL).await;
    let limit = Duration::from_secs(1) + MOMENT;
    held(within(limit, store.attempt(&ticket(13)?)).await?)?;
    foreign.soon().await??;
    // What comes too late for whoever asked takes nothing.
    calm().await?;
    let foreign = lock_row(MOMENT).await;
    let given_up = within(MOMENT / 5, store.attempt(&ticket(11)?)).await;
    ensure(given_up.is_err(), "it did not wait")?;
    foreign.soon().await??;
    sleep(MOMENT / 5).await;
    let last = ticket(12)?;
    let answer = store.attempt(&last).await?;
    ensure(matches!(answer, Attempt::Granted(_)), format!("{answer:?}"))?;
    store.release(&last).await?;
    drop(store);
    only_rows_left(&*server).await
}

pub(crate) async fn short_time_limits_of_the_server_cost_no_hold<D: Database>() -> Outcome {
    let server = D::start().await?;
    server.run(D::IMPATIENT).await?;
    for way in WAYS {
        let of = locks(&server, way, LONG, 4).await?;
        let kept = client(&server, way, TTL).await?;
        let kept = kept.lock(format!("kept/{way}"))?.acquire().await?;
        let section = Section::default();
        let work = spawn({
            let (section, of) = (section.clone(), of.clone());
            async move { section.share(&of, 15).await }
        });
        // Longer than what the server lets anybody wait.
        let name = of[0].name().as_str().to_owned();
        server.run(&D::row_lock(&name, TTL)).await?;
        work.soon().await??;
        sleep(TTL).await;
        kept.check()?;
        kept.release().await?;
    }
    only_rows_left(&server).await
}

pub(crate) async fn a_read_only_server_is_told_and_heals<D: Database>() -> Outcome {
    let server = D::start().await?;
    let [forbid, allow] = D::READ_ONLY;
    for way in WAYS {
        let lock = locks(&server, way, TTL, 1).await?.remove(0);
        lock.acquire().await?.release().await?;
        server.run(forbid).await?;
        server.kill_sessions().await?;
        sleep(Duration::from_millis(100)).await;
        // The first may meet the connection that was cut.
        drop(soon(lock.try_acquire()).await?);
        let told = problem(soon(lock.try_acquire()).await?)?;
        ensure(told == Problem::ReadOnly, format!("{told:?}"))?;
        let mut waiter = acquire(&lock);
        waiter.waits_for(Duration::from_millis(500)).await?;
        server.run(allow).await?;
        server.kill_sessions().await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    only_rows_left(&server).await
}
