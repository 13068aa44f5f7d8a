//! Holds that pass from one guard to another, beside all that may happen meanwhile.
#![expect(
    clippy::disallowed_methods,
    reason = "tests fail by panicking and run inside a runtime"
)]

use std::sync::Arc;
use std::time::Duration;

use crate::stage::{S, setup, stage};
use lockkit_core::contract::Mode;
use lockkit_core::layers::{Fault, Faulty, Operation, Rule};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, Lease, LockClient, Outcome};
use tokio::time::{sleep, timeout};

#[tokio::test(start_paused = true)]
async fn writer_becomes_a_reader_within_the_grace_of_a_shutdown() {
    let (_, client) = setup();
    let writer = client
        .rw_lock("a")
        .unwrap()
        .write()
        .acquire()
        .await
        .unwrap();
    let closing = client.clone();
    let closing = tokio::spawn(async move { closing.shutdown(60 * S).await });
    sleep(S).await;
    let reader = writer.downgrade().await.unwrap();
    assert_eq!(reader.ticket().mode, Mode::Read);
    sleep(40 * S).await;
    reader.check().unwrap();
    reader.release().await.unwrap();
    timeout(S, closing).await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn reader_keeps_the_extension_of_the_writer() {
    let (_, client) = setup();
    let writer = client.rw_lock("a").unwrap().write();
    let writer = writer.with_lease(Lease::fixed(5 * S)).unwrap();
    let writer = writer.acquire().await.unwrap();
    writer.extend(60 * S).await.unwrap();
    let reader = writer.downgrade().await.unwrap();
    assert!(reader.remaining() > 55 * S, "{:?}", reader.remaining());
    sleep(10 * S).await;
    reader.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn closed_client_leaves_a_hold_that_it_cannot_adopt() {
    let (store, old) = setup();
    let [closed, open] = [(); 2].map(|()| LockClient::new(store.connect()).unwrap());
    let guard = old.lock("a").unwrap().acquire().await.unwrap();
    let text = guard.detach().await.unwrap();
    closed.shutdown(Duration::ZERO).await.unwrap();
    let refused = closed.adopt(&text).await.unwrap_err();
    assert!(matches!(refused, Error::Shutdown), "{refused}");
    open.adopt(&text).await.unwrap().check().unwrap();
}

/// It is kept until its lease ends, whatever becomes of its guards.
#[tokio::test(start_paused = true)]
async fn leaked_hold_is_not_passed_on() {
    let (store, client) = setup();
    let writer = client.rw_lock("a").unwrap().write();
    for downgrades in [false, true] {
        let guard = writer.acquire().await.unwrap();
        guard.reenter().unwrap().leak();
        let refused = if downgrades {
            guard.downgrade().await.map(drop)
        } else {
            guard.detach().await.map(drop)
        };
        assert!(
            matches!(refused, Err(Error::InvalidOption { .. })),
            "{refused:?}"
        );
        client.drain().await;
        assert_eq!(store.counts().holds, 1);
        sleep(40 * S).await;
    }
}

#[tokio::test(start_paused = true)]
async fn owner_that_becomes_a_reader_waits_for_no_acquire_of_its_own() {
    let faulty = Faulty::new(Arc::new(MemoryStore::new()), 1);
    let slow = Fault::Delay { min: S, max: S };
    faulty.faults().inject(Rule::new(slow).on(Operation::Adopt));
    let client = LockClient::new(faulty).unwrap();
    let owner = client.owner();
    let lock = client.rw_lock("a").unwrap();
    let [read, write] = [lock.read(), lock.write()].map(|lock| lock.with_owner(&owner).unwrap());
    let writer = write.acquire().await.unwrap();
    let (reader, other, again) = tokio::join!(
        writer.downgrade(),
        async {
            sleep(S / 2).await;
            write.acquire().await
        },
        async {
            sleep(2 * S).await;
            timeout(S, read.acquire()).await.unwrap()
        }
    );
    assert_eq!(again.unwrap().token(), reader.unwrap().token());
    // It would wait for itself.
    assert!(matches!(other, Err(Error::InvalidOption { .. })));
}

#[tokio::test(start_paused = true)]
async fn owner_whose_hold_was_not_adopted_can_acquire_again() {
    let faulty = Faulty::new(Arc::new(MemoryStore::new()), 1);
    let refused = Fault::Fail(Outcome::Rejected);
    faulty
        .faults()
        .inject(Rule::new(refused).on(Operation::Adopt));
    let client = LockClient::new(faulty).unwrap();
    let write = client.rw_lock("a").unwrap().write();
    let write = write.with_owner(&client.owner()).unwrap();
    let writer = write.acquire().await.unwrap();
    writer.downgrade().await.unwrap_err();
    drop(timeout(S, write.acquire()).await.unwrap().unwrap());
    let (writer, _other) = (
        write.acquire().await.unwrap(),
        write.acquire().await.unwrap(),
    );
    // It has another guard, so that the hold stays the owner's.
    writer.downgrade().await.unwrap_err();
    drop(timeout(S, write.acquire()).await.unwrap().unwrap());
}

/// The store makes no lease shorter that is adopted, and says nothing of it.
#[tokio::test(start_paused = true)]
async fn adopted_hold_is_released_however_long_its_former_lease_lasts() {
    let stage = stage(MemoryStore::builder());
    let lock = stage.other.rw_lock("a").unwrap().write();
    let lock = lock.with_lease(Lease::fixed(3600 * S)).unwrap();
    for way in ["answered", "downgraded", "unanswered"] {
        let text = lock.acquire().await.unwrap().detach().await.unwrap();
        if way == "unanswered" {
            for rule in [
                Rule::new(Fault::DropReply).on(Operation::Adopt).times(1),
                Rule::new(Fault::Fail(Outcome::Rejected)).on(Operation::Adopt),
                Rule::new(Fault::Hang).on(Operation::Release),
            ] {
                stage.faults.inject(rule);
            }
            stage.client.adopt(&text).await.unwrap_err();
        } else {
            let mut guard = stage.client.adopt(&text).await.unwrap();
            if way == "downgraded" {
                guard = guard.downgrade().await.unwrap();
            }
            stage.faults.black_hole();
            drop(guard);
        }
        // Longer than the lease of the client that adopted it.
        sleep(120 * S).await;
        stage.faults.heal();
        stage.client.drain().await;
        let guard = lock.try_acquire().await.unwrap();
        guard.expect(way).release().await.unwrap();
    }
}
