//! Limits of the pool, of time, and of what the server lets be written.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::task::{Task, acquire, soon, spawn, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::contract::{Attempt, Mode, Release, Ticket};
use lockkit_core::{
    ClientId, DistributedLock as _, Error, Guard, HolderId, LockClient, LockName, Outcome as Told,
};
use lockkit_sql::{PostgresStore, Problem, SqlFault};
use tokio::time::{Instant, sleep};

use crate::quiet::no_statement_failed;
use crate::section::Section;
use crate::world::{
    Database, LONG, Postgres, SOON, TTL, WAYS, address, builder, client, locks, only_rows_left,
    through,
};

/// Another session locks a row for this time.
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

/// Renews all holds in one request, until it skips the locked row of one of them.
async fn renew_until_skipped(client: &LockClient, guards: &[Guard], locked: usize) -> Outcome {
    let tickets: Vec<Ticket> = guards.iter().map(|guard| guard.ticket().clone()).collect();
    loop {
        let renewals = within(TTL, client.backend().renew(&tickets)).await?;
        if renewals.get(locked).is_some_and(Result::is_err) {
            return Ok(());
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Renewals of fifty holds, of which one has its row locked by another session.
pub(crate) async fn locked_row_delays_no_other<D: Database>() -> Outcome {
    let server = D::start().await?;
    let client = client(&server, "lease", TTL).await?;
    let mut guards = Vec::new();
    for number in 0..50 {
        let name = format!("held/{number}");
        // Readers among them.
        let lock = match number % 2 {
            0 => client.rw_lock(name)?.read(),
            _ => client.lock(name)?,
        };
        guards.push(lock.acquire().await?);
    }
    let server = Arc::new(server);
    let locked = [7, 8];
    // Until the attempts below have ended: the renewal of a reader waits for its row for a while.
    let foreign = locked.map(|number| lock_row(&server, &format!("held/{number}"), TTL * 5));
    for number in locked {
        renew_until_skipped(&client, &guards, number).await?;
    }
    sleep(TTL * 2).await;
    for (number, guard) in guards.iter().enumerate() {
        let held = guard.check().is_ok();
        let expected = !locked.contains(&number);
        ensure(held == expected, format!("{number} is held: {held}"))?;
    }
    // Neither does an attempt wait for the row, nor a new name.
    let other = crate::world::client(&*server, "lease", TTL).await?;
    let tried = within(Duration::from_secs(1), other.lock("held/7")?.try_acquire()).await??;
    ensure(tried.is_none(), "taken although its row is locked")?;
    let fresh = within(Duration::from_secs(1), other.lock("held/50")?.acquire()).await??;
    fresh.release().await?;
    for foreign in foreign {
        foreign.soon().await??;
    }
    // The rows still name the holds that could not be released; the next ones take them over.
    for number in locked {
        let next = other.lock(format!("held/{number}"))?;
        let next = within(SOON, next.acquire()).await??;
        next.release().await?;
    }
    // A renewal of a reader has given up its row, and a release that waited for it has no client any more.
    let given_up = [
        "due to lock timeout",
        "ERROR 1158",
        "ERROR 1160",
        "ERROR 1205",
    ];
    no_statement_failed(&*server, &given_up).await?;
    for guard in guards {
        drop(guard.release().await);
    }
    client.drain().await;
    only_rows_left(&*server).await
}

/// Another session has locked the row of a hold when it is released.
pub(crate) async fn release_waits_for_no_locked_row<D: Database>() -> Outcome {
    let server = D::start().await?;
    let store = builder(&server, "lease").connect().await?;
    let holder = HolderId::new(ClientId::random(), 1);
    let ticket = Ticket::new(LockName::new("jobs")?, holder, LONG);
    store.attempt(&ticket).await?;
    let pool = server.pool(1).await?;
    let mut row = pool.begin().await?;
    D::lock_row(&mut row, "jobs").await?;
    let released = within(SOON, store.release(&ticket)).await?;
    let told = released.err().map(|error| error.outcome());
    ensure(told == Some(Told::Unavailable), format!("{told:?}"))?;
    row.rollback().await?;
    let released = store.release(&ticket).await?;
    ensure(released == Release::Released, "it did not hold any more")?;
    no_statement_failed(&server, &[]).await?;
    drop(store);
    only_rows_left(&server).await
}

/// Its lease has ended, and an application has the lock for as long as a transaction.
pub(crate) async fn late_release_of_a_reader_waits_for_no_locked_row<D: Database>() -> Outcome {
    let server = D::start().await?;
    let store = builder(&server, "lease").connect().await?;
    let holder = HolderId::new(ClientId::random(), 1);
    let ttl = Duration::from_millis(500);
    let ticket = Ticket::new(LockName::new("jobs")?, holder, ttl).with_mode(Mode::Read);
    let granted = store.attempt(&ticket).await?;
    let reads = matches!(granted, Attempt::Granted(_));
    ensure(reads, format!("{granted:?}"))?;
    sleep(ttl).await;
    let pool = server.pool(1).await?;
    let mut row = pool.begin().await?;
    D::lock_row(&mut row, "jobs").await?;
    let released = within(SOON, store.release(&ticket)).await??;
    ensure(released == Release::NotHeld, "it held for longer")?;
    row.rollback().await?;
    Ok(())
}

pub(crate) async fn short_time_limits_of_the_server_cost_no_hold<D: Database>() -> Outcome {
    let server = D::start().await?;
    server.set(&D::IMPATIENT).await?;
    for way in WAYS {
        let of = locks(&server, way, LONG, 4).await?;
        let kept = client(&server, way, TTL).await?;
        let kept = kept.lock(format!("kept/{way}"))?.acquire().await?;
        let section = Section::default();
        let work = spawn({
            let (section, of) = (section.clone(), of.clone());
            async move { section.share(&of, 15).await }
        });
        // Longer than the server lets a session wait.
        let name = of[0].name().as_str().to_owned();
        server.run(&D::row_lock(&name, TTL)).await?;
        work.soon().await??;
        sleep(TTL).await;
        kept.check()?;
        kept.release().await?;
    }
    only_rows_left(&server).await
}

/// Sessions that began while the server took no writes stay so: the store closes them and opens others.
pub(crate) async fn leaves_a_server_that_takes_no_writes<D: Database>() -> Outcome {
    let server = D::start().await?;
    for [forbid, allow] in D::READ_ONLY {
        for way in WAYS {
            let of = locks(&server, way, TTL, 1).await?.remove(0);
            of.acquire().await?.release().await?;
            server.run(forbid).await?;
            let lock = locks(&server, way, TTL, 1).await?.remove(0);
            let told = problem(soon(lock.try_acquire()).await?)?;
            ensure(told == Problem::ReadOnly, format!("{told:?}"))?;
            let mut waiter = acquire(&lock);
            waiter.waits_for(Duration::from_millis(1500)).await?;
            server.run(allow).await?;
            within(SOON, waiter.soon()).await???.release().await?;
        }
    }
    only_rows_left(&server).await
}

/// The primary is demoted and lives on, and its name leads to another server some time later. Nothing but the server's
/// refusals makes the store leave it, while somebody waits and while nobody does.
pub(crate) async fn follows_a_name_to_the_new_primary<D: Database>() -> Outcome {
    let (old, new) = (D::start().await?, D::start().await?);
    let name = Proxy::start(address(&old)).await?;
    for way in WAYS {
        for waits in [true, false] {
            // What cannot be released any more is held for a lease.
            let job = format!("{way}/{waits}");
            // It makes the table, as a replica has it.
            let there = client(&new, way, LONG).await?.lock(&job)?;
            let url = through(&old, &name, &format!("pin={}", way == "pin"));
            let lock = soon(lockkit::connect(&url)).await??.lock(&job)?;
            soon(lock.acquire()).await??.release().await?;
            for statement in D::DEMOTED[0] {
                old.run(statement).await?;
            }
            until("it takes no writes", async || {
                Ok(lock.try_acquire().await.is_err())
            })
            .await?;
            let mut waiter = waits.then(|| acquire(&lock));
            match &mut waiter {
                Some(waiter) => waiter.waits_for(Duration::from_millis(1500)).await?,
                // A session is opened again and again, and leaves an idle connection at the old server.
                None => sleep(Duration::from_millis(1500)).await,
            }
            name.lead_to(address(&new));
            if !waits {
                sleep(Duration::from_secs(1)).await;
            }
            let waiter = waiter.unwrap_or_else(|| acquire(&lock));
            let guard = within(SOON, waiter.soon()).await???;
            let tried = there.try_acquire().await?;
            ensure(tried.is_none(), "it is held elsewhere")?;
            guard.release().await?;
            for statement in D::DEMOTED[1] {
                old.run(statement).await?;
            }
            name.lead_to(address(&old));
        }
    }
    only_rows_left(&new).await
}

/// The store connects to a server that takes no writes at most once a second, whatever the number of callers.
pub(crate) async fn looks_for_the_primary_once_a_second() -> Outcome {
    let server = Postgres::start().await?;
    client(&server, "lease", TTL).await?;
    let [forbid, _] = Postgres::READ_ONLY[0];
    server.run(forbid).await?;
    let way = Proxy::start(([127, 0, 0, 1], server.options().get_port()).into()).await?;
    let options = server.options().port(way.addr().port());
    let store = PostgresStore::builder(options).connect().await?;
    let ticket = Ticket::new(
        LockName::new("jobs")?,
        HolderId::new(ClientId::random(), 1),
        TTL,
    );
    let refused = async |store: &PostgresStore, ticket: &Ticket| {
        let told = store.attempt(ticket).await.err().map(|it| it.outcome());
        ensure(told == Some(Told::Unavailable), format!("{told:?}"))
    };
    // The store knows it from now on.
    refused(&store, &ticket).await?;
    let before = way.counts().connections;
    let end = Instant::now() + Duration::from_secs(3);
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (store, ticket) = (store.clone(), ticket.clone());
            spawn(async move {
                while Instant::now() < end {
                    refused(&store, &ticket).await?;
                    sleep(Duration::from_millis(20)).await;
                }
                Outcome::Ok(())
            })
        })
        .collect();
    for caller in callers {
        caller.soon().await??;
    }
    let dialled = way.counts().connections - before;
    ensure((2..=4).contains(&dialled), format!("{dialled} connections"))
}
