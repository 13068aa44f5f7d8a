//! Rows of readers and permits that are deleted, all of them or some, or locked.

use std::convert::Infallible;
use std::time::Duration;

use conformance_tests::loss::{both_lost, grown, lost};
use conformance_tests::requests::{must_renew, renewed};
use conformance_tests::task::{acquire, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::contract::{Mode, Ticket};
use lockkit_core::{ClientId, DistributedLock as _, Guard, HolderId, Lock, LockName};
use lockkit_sql::SqlStore;
use tokio::time::{Instant, sleep};

use crate::world::{Database, LONG, SOON, TTL, builder, client, only_rows_left};

const NAME: &str = "jobs";
/// Modes that two may hold together.
const MODES: [&str; 2] = ["read", "permit"];

/// The lock in a mode, as a new client sees it.
async fn lock<D: Database>(server: &D, mode: &str) -> Outcome<Lock> {
    Ok(match mode {
        "permit" => client(server, "lease", TTL).await?.semaphore(NAME, 2)?,
        "write" => client(server, "lease", LONG).await?.rw_lock(NAME)?.write(),
        _ => client(server, "lease", TTL).await?.rw_lock(NAME)?.read(),
    })
}

/// Two holders.
async fn two<D: Database>(server: &D, mode: &str) -> Outcome<[Guard; 2]> {
    let mut guards = Vec::new();
    for _ in 0..2 {
        let lock = lock(server, mode).await?;
        guards.push(within(SOON, lock.acquire()).await??);
    }
    let wrong = |_| Failure::new("not two guards");
    guards.try_into().map_err(wrong)
}

/// A reader that holds, without a client above its store.
async fn reader<D: Database>(server: &D) -> Outcome<(SqlStore<D::Dialect>, Ticket)> {
    let store = builder(server, "lease").connect().await?;
    let holder = HolderId::new(ClientId::random(), 1);
    let ticket = Ticket::new(LockName::new(NAME)?, holder, LONG).with_mode(Mode::Read);
    store.attempt(&ticket).await?;
    Ok((store, ticket))
}

/// The row of the name stays: no writer gets the lock before the last lease would have ended.
pub(crate) async fn holders_without_their_rows_lose_and_no_writer_passes_them<D: Database>()
-> Outcome {
    let server = D::start().await?;
    for mode in MODES {
        let writer = lock(&server, "write").await?;
        let guards = two(&server, mode).await?;
        server.run("delete from app.lockkit_locks_holds").await?;
        let none = writer.try_acquire().await?.is_none();
        ensure(none, "granted while the holders may rely on their leases")?;
        let writer = acquire(&writer);
        let before = both_lost(guards, SOON).await?;
        let next = within(TTL + SOON, writer.soon()).await???;
        grown(&next, before)?;
        next.release().await?;
    }
    only_rows_left(&server).await
}

/// As after a restore of older data: the other holder goes on.
pub(crate) async fn holder_without_its_row_loses_alone<D: Database>() -> Outcome {
    let server = D::start().await?;
    for mode in MODES {
        let [kept, gone] = two(&server, mode).await?;
        let mut writer = acquire(&lock(&server, "write").await?);
        let sql = format!(
            "delete from app.lockkit_locks_holds where holder = '{}'",
            gone.holder()
        );
        server.run(&sql).await?;
        lost(gone, SOON).await?;
        writer.waits_for(TTL).await?;
        kept.check()?;
        kept.release().await?;
        within(SOON, writer.soon()).await???.release().await?;
    }
    only_rows_left(&server).await
}

/// What is left in the second table counts for nothing, neither for those who held nor against those who come.
pub(crate) async fn rows_without_that_of_their_name_are_no_holds<D: Database>() -> Outcome {
    let server = D::start().await?;
    let name = "delete from app.lockkit_locks";
    let all = "delete from app.lockkit_locks; delete from app.lockkit_locks_holds";
    for mode in MODES {
        for delete in [name, all] {
            let guards = two(&server, mode).await?;
            server.run(delete).await?;
            let next = within(SOON, lock(&server, "write").await?.acquire()).await??;
            let before = both_lost(guards, SOON).await?;
            grown(&next, before)?;
            next.check()?;
            next.release().await?;
            let next = two(&server, mode).await?;
            let holds = server.ask("select count(*) from app.lockkit_locks_holds");
            ensure(holds.await? == ["2"], "a row of a former holder is left")?;
            for guard in next {
                grown(&guard, before)?;
                guard.release().await?;
            }
        }
    }
    only_rows_left(&server).await
}

/// Steps of other holds lock the row of the name, each for a moment.
pub(crate) async fn renewal_of_a_reader_waits_for_short_steps<D: Database>() -> Outcome {
    let server = D::start().await?;
    let (store, ticket) = reader(&server).await?;
    let step = D::row_lock(NAME, Duration::from_millis(5));
    let steps = async {
        for _ in 0..10 {
            server.run(&step).await?;
        }
        Outcome::Ok(())
    };
    let renewals = async {
        let mut skipped = 0;
        for _ in 0..100 {
            skipped += u32::from(renewed(&store, &ticket).await?.is_err());
        }
        Outcome::Ok(skipped)
    };
    let (steps, skipped) = tokio::join!(steps, renewals);
    steps?;
    let skipped = skipped?;
    // Not none, for a step lasts longer on a busy machine.
    ensure(skipped <= 5, format!("{skipped} of 100 were skipped"))?;
    store.release(&ticket).await?;
    only_rows_left(&server).await
}

/// The client gives up a request after two seconds, however long the lease is, and with it what others have.
pub(crate) async fn renewal_of_a_reader_gives_a_locked_row_up<D: Database>() -> Outcome {
    let server = D::start().await?;
    let (store, ticket) = reader(&server).await?;
    let row = D::row_lock(NAME, Duration::from_secs(3));
    let renewals = async {
        loop {
            let began = Instant::now();
            let renewal = renewed(&store, &ticket).await?;
            let took = began.elapsed();
            ensure(took < Duration::from_secs(1), format!("it took {took:?}"))?;
            if renewal.is_err() {
                return Outcome::Ok(());
            }
        }
    };
    let (locked, given_up) = tokio::join!(server.run(&row), renewals);
    locked?;
    given_up?;
    store.release(&ticket).await?;
    only_rows_left(&server).await
}

/// Steps of others follow each other at once, so that the row is always locked.
pub(crate) async fn renewal_of_a_reader_takes_its_turn<D: Database>() -> Outcome {
    let server = D::start().await?;
    let (store, ticket) = reader(&server).await?;
    let step = D::row_lock(NAME, Duration::from_millis(100));
    let steps = async || -> Outcome<Infallible> {
        loop {
            server.run(&step).await?;
        }
    };
    let renewals = async {
        sleep(Duration::from_millis(500)).await;
        for _ in 0..5 {
            must_renew(&store, &ticket).await?;
        }
        Outcome::Ok(())
    };
    tokio::select! {
        failed = async { tokio::try_join!(steps(), steps(), steps()) } => match failed?.0 {},
        renewed = renewals => renewed?,
    }
    store.release(&ticket).await?;
    only_rows_left(&server).await
}
