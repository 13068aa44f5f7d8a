//! Transactions of the application that commit only while a hold stands.

use std::time::Duration;

use conformance_tests::task::{acquire, spawn, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::contract::{Attempt, Mode, Release, Ticket};
use lockkit_core::{ClientId, DistributedLock as _, Guard, HolderId, Lease, LockClient, LockName};
use lockkit_sql::{GuardedError, TxLock};
use sqlx::Transaction;
use tokio::time::sleep;

use crate::world::{Database, LONG, Postgres, SOON, TTL, WAYS, builder, client, only_rows_left};

/// What a holder tries whose hold has ended.
pub(crate) async fn refused<D: Database>(
    client: &LockClient,
    guard: &Guard,
    mut transaction: Transaction<'_, D::Driver>,
) -> Outcome {
    let stale = D::still_held(client, guard, &mut transaction).await;
    ensure(
        matches!(stale, Err(GuardedError::Fenced)),
        format!("a stale holder: {stale:?}"),
    )?;
    Ok(transaction.rollback().await?)
}

pub(crate) async fn stale_holder_commits_nothing<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(3).await?;
    for (number, way) in (1..).zip(WAYS) {
        let mine = client(&server, way, TTL).await?;
        let other = client(&server, "lease", TTL).await?;
        let name = format!("jobs/{way}");
        let guard = mine.lock(name.as_str())?.acquire().await?;
        let mut transaction = pool.begin().await?;
        D::count(&mut transaction).await?;
        D::still_held(&mine, &guard, &mut transaction).await?;
        transaction.commit().await?;
        // The second has begun before it is taken over.
        let mut transaction = pool.begin().await?;
        D::count(&mut transaction).await?;
        let theirs = other.lock(name.as_str())?;
        theirs.break_lock().await?;
        let next = within(SOON, theirs.acquire()).await??;
        refused::<D>(&mine, &guard, transaction).await?;
        let counted = server.counted().await?;
        ensure(counted == number, format!("{counted} for {number} commits"))?;
        next.release().await?;
    }
    only_rows_left(&server).await
}

/// Releases a hold that a transaction still guards, as a client does with one that it has lost.
pub(crate) async fn released_hold_commits_nothing<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(1).await?;
    let mine = client(&server, "lease", LONG).await?;
    let lock = mine.lock("jobs")?;
    let guard = lock.acquire().await?;
    let released = mine.backend().release(guard.ticket()).await?;
    ensure(released == Release::Released, format!("{released:?}"))?;
    refused::<D>(&mine, &guard, pool.begin().await?).await?;
    let again = mine.backend().release(guard.ticket()).await?;
    ensure(again == Release::NotHeld, format!("{again:?} again"))?;
    only_rows_left(&server).await
}

/// A holder whose lease has ended, and who has not noticed: a transaction passed it over, and what it
/// would write now comes after that.
pub(crate) async fn lock_of_a_transaction_fences_the_expired_holder<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(2).await?;
    let mine = client(&server, "lease", LONG).await?;
    let other = client(&server, "lease", LONG).await?;
    let guard = mine.lock("jobs")?.acquire().await?;
    server
        .run("update app.lockkit_locks set expires_at = 1")
        .await?;
    let mut transaction = pool.begin().await?;
    let taken = TxLock::<D::Dialect>::take(&other, "jobs", &mut transaction).await?;
    ensure(taken.is_some(), "a lock whose lease has ended was refused")?;
    transaction.rollback().await?;
    // Undone with the transaction.
    let mut transaction = pool.begin().await?;
    D::still_held(&mine, &guard, &mut transaction).await?;
    transaction.rollback().await?;
    let mut transaction = pool.begin().await?;
    TxLock::<D::Dialect>::take(&other, "jobs", &mut transaction).await?;
    D::count(&mut transaction).await?;
    transaction.commit().await?;
    refused::<D>(&mine, &guard, pool.begin().await?).await?;
    drop(guard);
    mine.drain().await;
    only_rows_left(&server).await
}

/// Also when the lease has run out in the middle of the transaction: no clock decides.
pub(crate) async fn no_client_takes_over_before_the_commit<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(3).await?;
    for way in WAYS {
        let mine = client(&server, way, TTL).await?;
        let other = client(&server, way, TTL).await?;
        let name = format!("jobs/{way}");
        let lock = mine.lock(name.as_str())?.with_lease(Lease::fixed(TTL))?;
        let guard = lock.acquire().await?;
        let mut transaction = pool.begin().await?;
        D::count(&mut transaction).await?;
        D::still_held(&mine, &guard, &mut transaction).await?;
        let mut waiter = acquire(&other.lock(name.as_str())?);
        waiter.waits_for(TTL + Duration::from_millis(500)).await?;
        ensure(guard.check().is_err(), "the lease has not ended")?;
        transaction.commit().await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    // A renewed lease is renewed in spite of it, where the database can tell the two apart.
    let mine = client(&server, "lease", TTL).await?;
    let guard = mine.lock("kept")?.acquire().await?;
    let mut transaction = pool.begin().await?;
    D::still_held(&mine, &guard, &mut transaction).await?;
    sleep(TTL / 2).await;
    guard.check()?;
    transaction.rollback().await?;
    sleep(TTL).await;
    guard.check()?;
    guard.release().await?;
    only_rows_left(&server).await
}

pub(crate) async fn lock_of_a_transaction_ends_with_it<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(3).await?;
    for way in WAYS {
        let mine = client(&server, way, TTL).await?;
        let other = client(&server, way, TTL).await?;
        // A name that was never used, and one that was.
        for name in [format!("fresh/{way}"), format!("fresh/{way}")] {
            let lock = other.lock(name.as_str())?;
            let mut transaction = pool.begin().await?;
            let taken = TxLock::<D::Dialect>::take(&mine, &name, &mut transaction).await?;
            let mut taken = taken.ok_or_else(|| Failure::new("a free lock was refused"))?;
            D::count(&mut taken).await?;
            drop(taken);
            let tried = within(SOON, lock.try_acquire()).await??;
            ensure(tried.is_none(), "taken while a transaction has it")?;
            let mut waiter = acquire(&lock);
            waiter.waits_for(Duration::from_millis(200)).await?;
            transaction.rollback().await?;
            let guard = within(SOON, waiter.soon()).await???;
            let mut transaction = pool.begin().await?;
            let taken = TxLock::<D::Dialect>::take(&mine, &name, &mut transaction).await?;
            ensure(
                taken.is_none(),
                "a transaction has a lock that a client holds",
            )?;
            drop(taken);
            transaction.rollback().await?;
            guard.release().await?;
        }
    }
    ensure(
        server.counted().await? == 0,
        "what was rolled back was counted",
    )?;
    only_rows_left(&server).await
}

/// A transaction that was refused a lock goes on for longer than the lease of its holder.
pub(crate) async fn refused_transaction_keeps_no_row_locked<D: Database>() -> Outcome {
    let server = D::start().await?;
    let pool = server.pool(1).await?;
    let mine = client(&server, "lease", TTL).await?;
    let name = "jobs";
    let (alone, shared) = (mine.lock(name)?, mine.rw_lock(name)?);
    for lock in [alone, shared.read()] {
        let guard = lock.acquire().await?;
        let mut transaction = pool.begin().await?;
        let taken = TxLock::<D::Dialect>::take(&mine, name, &mut transaction).await?;
        ensure(taken.is_none(), "it took a lock that is held")?;
        drop(taken);
        sleep(2 * TTL).await;
        guard.check()?;
        within(SOON, guard.release()).await??;
        transaction.rollback().await?;
    }
    only_rows_left(&server).await
}

/// A row that is free is locked for a moment by each attempt. A try does not call that held, nor
/// if the hold before it was broken and its holder has not noticed.
pub(crate) async fn try_waits_for_a_row_locked_for_a_moment<D: Database>() -> Outcome {
    const ROUNDS: u64 = 20;
    let server = D::start().await?;
    let pool = server.pool(1).await?;
    let mine = client(&server, "lease", TTL).await?;
    for way in WAYS {
        let lock = client(&server, way, TTL).await?;
        let lock = lock.lock(format!("jobs/{way}"))?;
        lock.acquire().await?.release().await?;
        let frozen = builder(&server, way).connect().await?;
        let mut taken = 0;
        for round in 0..ROUNDS {
            let name = lock.name();
            if round % 2 == 1 {
                let holder = HolderId::new(ClientId::random(), round);
                let ticket = Ticket::new(name.clone(), holder, LONG);
                frozen.attempt(&ticket).await?;
                let broken = mine.lock(name.as_str())?.break_lock().await?;
                ensure(broken.is_some(), "nothing was broken")?;
            }
            let mut transaction = pool.begin().await?;
            let passing = TxLock::<D::Dialect>::take(&mine, name.as_str(), &mut transaction);
            ensure(passing.await?.is_some(), "a free lock was refused")?;
            let tried = spawn({
                let lock = lock.clone();
                async move { lock.try_acquire().await }
            });
            sleep(Duration::from_millis(5)).await;
            transaction.rollback().await?;
            if let Some(guard) = tried.soon().await?? {
                guard.release().await?;
                taken += 1;
            }
        }
        // Not all, for the machine may be busy with others.
        let enough = taken >= ROUNDS * 3 / 4;
        ensure(enough, format!("{way}: {taken} of {ROUNDS}"))?;
        lock.acquire().await?.release().await?;
    }
    only_rows_left(&server).await
}

/// A release has granted the lock to it, and its row is locked when it asks again: it must not take itself for one
/// that waits.
pub(crate) async fn waiter_that_holds_asks_again_while_its_row_is_locked() -> Outcome {
    let server = Postgres::start().await?;
    let store = server.builder().connect().await?;
    let name = LockName::new("jobs")?;
    let ticket = |mode| {
        let holder = HolderId::new(ClientId::random(), 1);
        Ticket::new(name.clone(), holder, LONG).with_mode(mode)
    };
    let holder = ticket(Mode::Exclusive);
    let held = store.attempt(&holder).await?;
    ensure(matches!(held, Attempt::Granted(_)), format!("{held:?}"))?;
    let (first, reader) = (ticket(Mode::Exclusive), ticket(Mode::Read));
    for waiter in [&first, &reader] {
        let waits = store.attempt(waiter).await?;
        ensure(matches!(waits, Attempt::Held { .. }), format!("{waits:?}"))?;
    }
    store.release(&holder).await?;
    let pool = server.pool(1).await?;
    let mut row = pool.begin().await?;
    Postgres::lock_row(&mut row, name.as_str()).await?;
    let asked = within(SOON, store.attempt(&first)).await??;
    row.rollback().await?;
    let soon = |pause: &Duration| *pause < Duration::from_millis(100);
    match &asked {
        Attempt::Held { retry_after, .. } if retry_after.as_ref().is_some_and(soon) => {}
        _ => return Err(Failure::new(format!("{asked:?}"))),
    }
    let granted = store.attempt(&first).await?;
    ensure(
        matches!(granted, Attempt::Granted(_)),
        format!("{granted:?}"),
    )?;
    for ticket in [&first, &reader] {
        store.release(ticket).await?;
    }
    only_rows_left(&server).await
}
