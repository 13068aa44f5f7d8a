//! Releases inside transactions of the application.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::proxy::{Direction, Dropped, Fate, Proxy};
use conformance_tests::section_history::SectionHistory;
use conformance_tests::task::{acquire, poll_once, spawn, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::layers::Faulty;
use lockkit_core::{Lease, LockClient, PollRange};
use lockkit_sql::{GuardedError, UncommittedRelease};
use sqlx::Transaction;
use tokio::time::sleep;

use crate::world::{
    Database, LONG, Postgres, SOON, TTL, WAYS, address, builder, client, only_rows_left, taker,
    through,
};

const SHORT: Duration = Duration::from_millis(200);

fn refused(result: &Result<UncommittedRelease, GuardedError>) -> Outcome {
    let fenced = matches!(result, Err(GuardedError::Fenced));
    ensure(fenced, format!("a stale holder: {result:?}"))
}

/// What was written and the release of a lock, also after `still_held`.
pub(crate) async fn commit_shows_data_and_release_together<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(2).await?;
    let mut commits = 0;
    for way in WAYS {
        let store = builder(&server, way).connect().await?;
        let calls = Faulty::new(Arc::new(store.clone()), 1);
        let faults = calls.faults();
        let mine = LockClient::builder(calls).lease(Lease::renewed(LONG));
        let mine = mine.build()?;
        let other = client(&server, way, TTL).await?;
        let other = other.lock("jobs")?;
        for guarded in [false, true] {
            let guard = mine.lock("jobs")?.acquire().await?;
            let token = guard.token();
            let mut waiter = acquire(&other);
            waiter.waits_for(SHORT).await?;
            let mut transaction = pool.begin().await?;
            D::count(&mut transaction).await?;
            if guarded {
                D::still_held(&mine, &guard, &mut transaction).await?;
            }
            let released = D::release_in(guard, &mut transaction).await?;
            let before = faults.all_calls();
            waiter.waits_for(SHORT).await?;
            let tried = client(&server, way, TTL).await?;
            let tried = tried.lock("jobs")?.try_acquire().await?;
            ensure(tried.is_none(), "granted before the commit")?;
            transaction.commit().await?;
            commits += 1;
            let next = within(SOON, waiter.soon()).await???;
            let counted = server.counted().await?;
            ensure(
                counted == commits,
                format!("granted before {counted} was {commits}"),
            )?;
            ensure(next.token() > token, "the token has not grown")?;
            released.committed();
            mine.drain().await;
            let calls = faults.all_calls() - before;
            ensure(calls == 0, format!("{calls} requests after the commit"))?;
            let counts = store.counts();
            ensure(
                (counts.tickets, counts.pins) == (0, 0),
                format!("{counts:?}"),
            )?;
            next.release().await?;
        }
    }
    only_rows_left(&server).await
}

/// Whatever the transaction has done, the client releases the lock.
pub(crate) async fn rollback_leaves_the_release_to_the_client<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(1).await?;
    for way in WAYS {
        let mine = client(&server, way, LONG).await?;
        let other = client(&server, way, LONG).await?.lock("jobs")?;
        for early in [false, true] {
            let guard = mine.lock("jobs")?.acquire().await?;
            let mut transaction = pool.begin().await?;
            D::count(&mut transaction).await?;
            let mut released = Some(D::release_in(guard, &mut transaction).await?);
            if early {
                released = None;
                sleep(SHORT).await;
            }
            transaction.rollback().await?;
            if !early {
                let tried = other.try_acquire().await?;
                ensure(tried.is_none(), "a rollback has released the lock")?;
            }
            drop(released);
            within(SOON, other.acquire()).await??.release().await?;
            mine.drain().await;
        }
    }
    let counted = server.counted().await?;
    ensure(counted == 0, format!("{counted} after rollbacks"))?;
    only_rows_left(&server).await
}

pub(crate) async fn release_of_a_hold_that_has_ended_is_refused<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(1).await?;
    for way in WAYS {
        let mine = client(&server, way, LONG).await?;
        let other = client(&server, "lease", LONG).await?;
        for taken in [false, true] {
            let guard = mine.lock("jobs")?.acquire().await?;
            let theirs = other.lock("jobs")?;
            server
                .run("update app.lockkit_locks set holder = null, session = 0")
                .await?;
            let next = match taken {
                true => Some(within(SOON, theirs.acquire()).await??),
                false => None,
            };
            let mut transaction = pool.begin().await?;
            D::count(&mut transaction).await?;
            refused(&D::release_in(guard, &mut transaction).await)?;
            transaction.rollback().await?;
            mine.drain().await;
            if let Some(next) = next {
                next.release().await?;
            }
        }
        // A late attempt of its own ticket took the lock again after others.
        let guard = mine.lock("jobs")?.acquire().await?;
        server
            .run("update app.lockkit_locks set token = token + 1")
            .await?;
        let mut transaction = pool.begin().await?;
        D::count(&mut transaction).await?;
        refused(&D::release_in(guard, &mut transaction).await)?;
        transaction.rollback().await?;
        mine.drain().await;
        // The holder knows it.
        let lock = mine.lock("jobs")?.with_lease(Lease::fixed(TTL))?;
        let guard = lock.acquire().await?;
        guard.lost().await;
        let mut transaction = pool.begin().await?;
        refused(&D::release_in(guard, &mut transaction).await)?;
        transaction.rollback().await?;
        mine.drain().await;
    }
    let counted = server.counted().await?;
    ensure(counted == 0, format!("{counted} of stale holders"))?;
    only_rows_left(&server).await
}

/// The commit does not arrive, or its reply does not.
pub(crate) async fn connection_cut_at_the_commit_leaves_a_free_lock<D: Database>() -> Outcome {
    let server = D::start().await?;
    let proxy = Proxy::start(address(&server)).await?;
    let pool = server.pool_at(proxy.addr().port(), 1).await?;
    let mine = client(&server, "lease", LONG).await?;
    for (fate, commits) in [(Fate::Cut, 0), (Fate::Drop(Dropped::Reset), 1)] {
        let guard = mine.lock("jobs")?.acquire().await?;
        let mut transaction = pool.begin().await?;
        D::count(&mut transaction).await?;
        let released = D::release_in(guard, &mut transaction).await?;
        proxy.judge(move |request| {
            let commits = request.windows(6).any(|word| word == b"COMMIT");
            if commits { fate.clone() } else { Fate::Pass }
        });
        ensure(transaction.commit().await.is_err(), "the commit succeeded")?;
        proxy.heal();
        drop(released);
        within(SOON, mine.lock("jobs")?.acquire())
            .await??
            .release()
            .await?;
        let counted = server.counted().await?;
        ensure(counted == commits, format!("{counted} for {commits}"))?;
        mine.drain().await;
    }
    only_rows_left(&server).await
}

/// Another transaction has the row locked for a moment, as a renewal does.
pub(crate) async fn release_waits_for_a_row_locked_for_a_moment<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(2).await?;
    let mine = client(&server, "lease", LONG).await?;
    let guard = mine.lock("jobs")?.acquire().await?;
    let mut row = pool.begin().await?;
    D::lock_row(&mut row, "jobs").await?;
    let mut transaction = pool.begin().await?;
    D::count(&mut transaction).await?;
    let released = {
        let mut release = Box::pin(D::release_in(guard, &mut transaction));
        let early = within(SHORT, &mut release).await;
        ensure(early.is_err(), "it did not wait for the row")?;
        row.rollback().await?;
        within(SOON, release).await??
    };
    transaction.commit().await?;
    released.committed();
    mine.lock("jobs")?.acquire().await?.release().await?;
    only_rows_left(&server).await
}

/// An attempt whose reply was lost may still arrive after the commit: it is withdrawn.
pub(crate) async fn late_attempt_is_withdrawn_after_the_commit<D: Database>() -> Outcome {
    let server = D::start().await?;
    let proxy = Proxy::start(address(&server)).await?;
    let pool = server.pool(1).await?;
    let store =
        lockkit_sql::SqlStore::<D::Dialect>::builder(server.pool_at(proxy.addr().port(), 1).await?);
    let store = store.prepare(false).connect().await?;
    let mine = LockClient::builder(store.clone()).lease(Lease::renewed(LONG));
    let mine = mine.build()?;
    mine.lock("jobs")?.acquire().await?.release().await?;
    proxy.drop_reply(Dropped::Reset, |request| {
        let table = b"lockkit_locks";
        request.windows(table.len()).any(|word| word == table)
    });
    let guard = within(SOON, mine.lock("jobs")?.acquire()).await??;
    let mut transaction = pool.begin().await?;
    let released = D::release_in(guard, &mut transaction).await?;
    transaction.commit().await?;
    released.committed();
    mine.drain().await;
    let withdrawn =
        "select count(*) from app.lockkit_locks_holds where token = -9223372036854775807";
    let withdrawn = server.ask(withdrawn).await?;
    ensure(withdrawn == ["1"], format!("{withdrawn:?} withdrawn"))?;
    ensure(store.counts().tickets == 0, format!("{:?}", store.counts()))?;
    mine.lock("jobs")?.acquire().await?.release().await?;
    only_rows_left(&server).await
}

/// Dropped at any of its polls, and with one round trip if it is not.
pub(crate) async fn release_is_one_round_trip_and_may_be_cancelled<D: Database>() -> Outcome {
    let server = D::start().await?;
    let proxy = Proxy::start(address(&server)).await?;
    let pool = server.pool_at(proxy.addr().port(), 1).await?;
    let mine = client(&server, "lease", LONG).await?;
    let jobs = mine.lock("jobs")?;
    // Else a reply may come within one poll, when the machine is busy.
    proxy.delay(Direction::Reply, Duration::from_millis(20));
    for polls in 0.. {
        let guard = within(SOON, jobs.acquire()).await??;
        let mut transaction = pool.begin().await?;
        D::count(&mut transaction).await?;
        let before = proxy.counts().round_trips;
        let released = {
            let mut release = Box::pin(D::release_in(guard, &mut transaction));
            let mut released = None;
            for _ in 0..polls {
                released = poll_once(&mut release).await;
                if released.is_some() {
                    break;
                }
                sleep(Duration::from_millis(5)).await;
            }
            released
        };
        let Some(released) = released else {
            transaction.rollback().await?;
            continue;
        };
        let trips = proxy.counts().round_trips - before;
        ensure(trips == 1, format!("{trips} round trips"))?;
        transaction.commit().await?;
        released?.committed();
        ensure(polls > 1, "it was never cancelled")?;
        break;
    }
    within(SOON, jobs.acquire()).await??.release().await?;
    mine.drain().await;
    only_rows_left(&server).await
}

/// Several clients count one after the other: no count is missed, and no lock is left, whatever the server refuses.
pub(crate) async fn releases_under_strict_isolation_lose_no_write<D: Database>() -> Outcome {
    let server = D::start().await?;
    server.set(&D::STRICT).await?;
    let pool = server.pool(4).await?;
    let mut workers = Vec::new();
    for number in 0..4 {
        let lock = client(&server, WAYS[number % 2], LONG)
            .await?
            .lock("jobs")?;
        let pool = pool.clone();
        workers.push(spawn(async move {
            let mut commits = 0;
            for _ in 0..10 {
                let guard = lock.acquire().await?;
                let mut transaction = pool.begin().await?;
                let released = match D::count(&mut transaction).await {
                    Ok(()) => D::release_in(guard, &mut transaction).await,
                    // A conflict.
                    Err(_) => continue,
                };
                match released {
                    Ok(released) if transaction.commit().await.is_ok() => {
                        released.committed();
                        commits += 1;
                    }
                    Ok(_) | Err(GuardedError::Backend(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Outcome::Ok(commits)
        }));
    }
    let mut commits = 0;
    for worker in workers {
        commits += worker.soon().await??;
    }
    let counted = server.counted().await?;
    ensure(
        counted == commits && commits > 0,
        format!("{counted} of {commits}"),
    )?;
    only_rows_left(&server).await
}

/// Transactions that release the lock, in processes that are killed and stopped.
pub(crate) async fn sections_follow_each_other<D: Database>() -> Outcome {
    let server = D::start().await?;
    let proxy = Proxy::start(address(&server)).await?;
    let query = "poll=5ms..50ms";
    let urls = [server.url(query), through(&server, &proxy, query)];
    let program = taker();
    let history = SectionHistory::new(&program, urls, SHORT * 3).behind(proxy);
    history.check().await
}

/// The commit notifies the first that waits, and waits for the disk as the application says.
pub(crate) async fn commit_grants_to_the_first_and_is_durable() -> Outcome {
    let server = Postgres::start().await?;
    let pool = server.pool(1).await?;
    let mine = client(&server, "lease", LONG).await?.lock("jobs")?;
    for waits in [false, true] {
        let guard = mine.acquire().await?;
        let mut waiters = Vec::new();
        if waits {
            for _ in 0..2 {
                let store = server.builder().poll(PollRange::new(LONG, LONG));
                let other = LockClient::builder(store.connect().await?);
                let other = other
                    .lease(Lease::renewed(LONG * 6))
                    .build()?
                    .lock("jobs")?;
                let mut waiter = acquire(&other);
                waiter.waits_for(SHORT * 2).await?;
                waiters.push(waiter);
            }
        }
        let mut transaction: Transaction<'_, _> = pool.begin().await?;
        Postgres::count(&mut transaction).await?;
        let released = Postgres::release_in(guard, &mut transaction).await?;
        let durable = sqlx::query_scalar("show synchronous_commit");
        let durable: String = durable.fetch_one(&mut *transaction).await?;
        ensure(durable == "on", format!("synchronous_commit = {durable}"))?;
        transaction.commit().await?;
        released.committed();
        for waiter in waiters {
            within(SOON, waiter.soon()).await???.release().await?;
        }
    }
    until("the last is released", async || {
        Ok(mine.try_acquire().await?.is_some())
    })
    .await?;
    only_rows_left(&server).await
}
