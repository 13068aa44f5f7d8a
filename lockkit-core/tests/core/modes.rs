//! Modes: which holds fit each other, and what a client does with them.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::contract::Mode;
use lockkit_core::layers::{Fault, Faulty, Operation, Rule};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, LockClient, MultiLock};
use tokio::time::{Instant, timeout};

use crate::stage::S;

fn permit(of: u32) -> Mode {
    let of = NonZeroU32::new(of).unwrap();
    Mode::Permit { of }
}

#[test]
fn fits_beside_as_many_as_there_is_room_for() {
    for (mode, others, exclusive, fits) in [
        (Mode::Exclusive, 0, false, true),
        (Mode::Exclusive, 1, false, false),
        (Mode::Write, 0, false, true),
        (Mode::Write, 1, true, false),
        (Mode::Read, 0, false, true),
        (Mode::Read, 1_000_000, false, true),
        (Mode::Read, 1, true, false),
        (permit(1), 0, false, true),
        (permit(1), 1, false, false),
        (permit(3), 2, false, true),
        (permit(3), 3, false, false),
        (permit(3), 1, true, false),
    ] {
        assert_eq!(mode.fits(others, exclusive), fits, "{mode:?} {others}");
    }
}

fn client() -> LockClient {
    LockClient::new(MemoryStore::new()).unwrap()
}

#[tokio::test]
async fn reader_of_a_client_does_not_wait_for_another_of_it() {
    let lock = client().rw_lock("a").unwrap();
    let first = lock.read().acquire().await.unwrap();
    let second = lock.read().try_acquire().await.unwrap().unwrap();
    assert!(second.token() > first.token());
    assert!(lock.write().try_acquire().await.unwrap().is_none());
    drop((first, second));
    let write = lock.write().acquire().await.unwrap();
    assert!(lock.read().try_acquire().await.unwrap().is_none());
    write.release().await.unwrap();
}

#[tokio::test]
async fn more_readers_than_lanes_hold_together() {
    let lock = client().rw_lock("a").unwrap();
    let mut guards = Vec::new();
    for _ in 0..200 {
        guards.push(lock.read().acquire().await.unwrap());
    }
    let short = Duration::from_millis(50);
    assert!(timeout(short, lock.write().acquire()).await.is_err());
    guards.clear();
    lock.write()
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn owner_with_a_permit_needs_no_second_one() {
    let client = client();
    let owner = client.owner();
    let permits = |count| {
        client
            .semaphore("a", count)
            .unwrap()
            .with_owner(&owner)
            .unwrap()
    };
    let first = permits(4).acquire().await.unwrap();
    let second = permits(4).acquire().await.unwrap();
    let third = permits(8).acquire().await.unwrap();
    assert_eq!([second.holder(), third.holder()], [first.holder(); 2]);
    let fewer = permits(2).acquire().await;
    assert!(
        matches!(fewer, Err(Error::InvalidOption { .. })),
        "{fewer:?}"
    );
    let message = fewer.unwrap_err().to_string();
    assert!(
        message.contains("`a`") && message.contains("release"),
        "{message}"
    );
    // There would be room for a second one.
    assert!(!message.contains("would wait"), "{message}");
}

#[tokio::test]
async fn several_names_are_held_in_any_modes() {
    let client = client();
    let (report, import) = (
        client.rw_lock("report").unwrap(),
        client.semaphore("import", 2),
    );
    let all = [report.read(), import.unwrap(), client.lock("lock").unwrap()];
    let all = MultiLock::new(all).unwrap();
    let reader = report.read().acquire().await.unwrap();
    let guard = all.acquire().await.unwrap();
    assert_eq!(guard.guards().len(), 3);
    reader.release().await.unwrap();
    guard.release().await.unwrap();
    assert!(report.write().try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn semaphore_without_permits_is_refused() {
    let error = client().semaphore("a", 0).unwrap_err();
    assert!(matches!(error, Error::InvalidOption { .. }), "{error:?}");
}

/// Those that may hold together stand in the queue together, and no more of them.
#[tokio::test]
async fn tasks_of_one_client_take_as_many_places_as_may_hold() {
    for (permits, places) in [(1, 1), (2, 2), (9, 5)] {
        let store = MemoryStore::new();
        let other = LockClient::new(store.connect()).unwrap();
        let held = other.lock("a").unwrap().acquire().await.unwrap();
        let client = LockClient::new(store.clone()).unwrap();
        let semaphore = client.semaphore("a", permits).unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let semaphore = semaphore.clone();
            waiting.spawn(async move { semaphore.acquire().await.map(drop) });
        }
        while store.counts().waiters < places {
            tokio::task::yield_now().await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(store.counts().waiters, places, "{permits}");
        held.release().await.unwrap();
        while let Some(served) = waiting.join_next().await {
            served.unwrap().unwrap();
        }
    }
}

/// Acquires of another name, in between, put no two of these behind each other.
#[tokio::test]
async fn names_share_no_places() {
    let store = MemoryStore::new();
    let other = LockClient::new(store.connect()).unwrap();
    let client = LockClient::new(store.clone()).unwrap();
    let mut kept = Vec::new();
    let mut waiting = tokio::task::JoinSet::new();
    for name in ["a", "b"] {
        kept.push(other.lock(name).unwrap().acquire().await.unwrap());
    }
    for name in ["a", "b", "a", "b"] {
        let semaphore = client.semaphore(name, 2).unwrap();
        waiting.spawn(async move { semaphore.acquire().await.map(drop) });
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.counts().waiters, 4);
}

/// None waits for the answer to another's request.
#[tokio::test(start_paused = true)]
async fn tasks_that_may_hold_together_ask_together() {
    let faulty = Faulty::new(Arc::new(MemoryStore::new()), 1);
    let slow = Fault::Delay { min: S, max: S };
    faulty
        .faults()
        .inject(Rule::new(slow).on(Operation::Attempt));
    let client = LockClient::new(faulty).unwrap();
    let semaphore = client.semaphore("a", 2).unwrap();
    let began = Instant::now();
    let (one, other) = tokio::join!(semaphore.acquire(), semaphore.acquire());
    let waited = began.elapsed();
    assert!(waited < 2 * S, "{waited:?}");
    drop((one.unwrap(), other.unwrap()));
}
