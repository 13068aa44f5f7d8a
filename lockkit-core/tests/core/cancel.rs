//! Dropping a future at any of its polls leaves nothing behind.
#![expect(
    clippy::disallowed_methods,
    reason = "tests fail by panicking and run inside a runtime"
)]

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::TokioClock;
use lockkit_core::layers::Operation;
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, Lease, Lock, LockClient};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::slow::{Slow, poll_times};
use crate::stage::stage;

const MS: Duration = Duration::from_millis(1);

/// A store that takes a few polls for every answer, and a client of it.
fn setup() -> (MemoryStore, LockClient) {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let client = LockClient::builder(Slow::new(store.connect(), 3))
        .clock(clock)
        .build()
        .unwrap();
    (store, client)
}

fn lock(client: &LockClient) -> Lock {
    client
        .lock("a")
        .unwrap()
        .with_lease(Lease::renewed(Duration::from_secs(3)))
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn acquire_of_a_free_lock_dropped_after_any_poll_leaves_nothing() {
    for polls in 0..12 {
        let (store, client) = setup();
        let lock = lock(&client);
        let guard = poll_times(lock.acquire(), polls).await;
        let held = usize::from(guard.is_some());
        client.drain().await;
        assert_eq!(store.counts().holds, held, "after {polls} polls");
        drop(guard);
        client.drain().await;
        assert!(
            store.is_empty(),
            "after {polls} polls: {:?}",
            store.counts()
        );
        assert!(lock.try_acquire().await.unwrap().is_some());
    }
}

/// The drain runs beside the task that ends the attempt, on another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_waits_for_the_release_of_a_cancelled_acquire() {
    for round in 0..2_000 {
        let (store, client) = setup();
        drop(poll_times(lock(&client).acquire(), 1 + round % 3).await);
        client.drain().await;
        assert!(store.is_empty(), "round {round}: {:?}", store.counts());
    }
}

#[tokio::test(start_paused = true)]
async fn try_dropped_after_any_poll_leaves_nothing() {
    for polls in 0..12 {
        let (store, client) = setup();
        drop(poll_times(lock(&client).try_acquire(), polls).await);
        client.drain().await;
        assert!(
            store.is_empty(),
            "after {polls} polls: {:?}",
            store.counts()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn waiting_acquire_dropped_after_any_poll_leaves_nothing() {
    for polls in 0..12 {
        let (store, client) = setup();
        let (_, other) = (0, LockClient::builder(store.connect()).build().unwrap());
        let held = other.lock("a").unwrap().acquire().await.unwrap();
        drop(poll_times(lock(&client).acquire(), polls).await);
        client.drain().await;
        assert_eq!(store.counts().waiters, 0, "after {polls} polls");
        held.release().await.unwrap();
        assert!(timeout(100 * MS, lock(&client).acquire()).await.is_ok());
    }
}

/// One of several tasks gives up, at any moment of the first one's attempt. The others wait on, and that is no
/// unfinished work.
#[tokio::test(start_paused = true)]
async fn drain_does_not_wait_for_those_who_wait_on() {
    for polls in 0..12 {
        let (store, client) = setup();
        let other = LockClient::builder(store.connect()).build().unwrap();
        let held = other.lock("a").unwrap().acquire().await.unwrap();
        let lock = lock(&client);
        let mut first = pin!(lock.acquire());
        assert!(poll_times(&mut first, polls).await.is_none());
        assert!(poll_times(lock.acquire(), 2).await.is_none());
        assert!(poll_times(&mut first, 20).await.is_none());
        let drained = timeout(100 * MS, client.drain()).await;
        assert!(drained.is_ok(), "after {polls} polls");
        held.release().await.unwrap();
        assert!(
            timeout(100 * MS, first).await.is_ok(),
            "after {polls} polls"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn release_dropped_after_any_poll_still_releases() {
    for polls in 0..8 {
        let (store, client) = setup();
        let guard = lock(&client).acquire().await.unwrap();
        let _ = poll_times(guard.release(), polls).await;
        client.drain().await;
        assert!(
            store.is_empty(),
            "after {polls} polls: {:?}",
            store.counts()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn first_of_several_waiters_can_leave_at_any_moment() {
    for polls in 0..12 {
        let (store, client) = setup();
        let other = LockClient::builder(store.connect()).build().unwrap();
        let held = other.lock("a").unwrap().acquire().await.unwrap();
        let (first, second) = (lock(&client), lock(&client));
        let first = tokio::spawn(async move { drop(poll_times(first.acquire(), polls).await) });
        let second = tokio::spawn(async move { second.acquire().await.unwrap().release().await });
        first.await.unwrap();
        sleep(10 * MS).await;
        held.release().await.unwrap();
        timeout(100 * MS, second)
            .await
            .expect("the second is served")
            .unwrap()
            .unwrap();
        client.drain().await;
        assert!(
            store.is_empty(),
            "after {polls} polls: {:?}",
            store.counts()
        );
    }
}

#[test]
fn guards_can_be_dropped_outside_a_runtime_and_in_a_panic() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let store = MemoryStore::new();
    let client = {
        let _inside = runtime.enter();
        LockClient::new(store.connect()).unwrap()
    };
    let take = || {
        runtime
            .block_on(client.lock("a").unwrap().acquire())
            .unwrap()
    };
    drop(take());
    runtime.block_on(client.drain());
    assert!(store.is_empty());
    let guard = take();
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    runtime.block_on(client.drain());
    assert!(store.is_empty());
    // After the runtime has stopped nothing can be released; the lease ends the hold.
    let guard = take();
    drop(runtime);
    drop(guard);
}

/// What it brings would be held after the client has ended, if only for a moment.
#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_requests_in_flight() {
    // With two polls more it has its answer.
    for polls in 1..=5 {
        for mere_try in [false, true] {
            let (store, client) = setup();
            let lock = lock(&client);
            let ended = Cell::new(false);
            let mut request = pin!(async {
                let answer = if mere_try {
                    lock.try_acquire().await.map(drop)
                } else {
                    lock.acquire().await.map(drop)
                };
                ended.set(true);
                answer
            });
            let early = poll_times(request.as_mut(), polls).await;
            assert!(early.is_none(), "{early:?} after {polls} polls");
            let shutdown = async {
                client.shutdown(Duration::ZERO).await.unwrap();
                assert!(ended.get(), "it runs on after {polls} polls");
                assert_eq!(store.counts().holds, 0, "after {polls} polls");
            };
            let (answer, ()) = tokio::join!(request, shutdown);
            assert!(matches!(answer, Err(Error::Shutdown)), "{answer:?}");
        }
    }
}

/// Also for an acquire that has used up its turn on the thread, and goes on after the shutdown.
#[tokio::test]
async fn no_request_follows_a_shutdown() {
    let stage = stage(MemoryStore::builder());
    let lock = lock(&stage.client);
    let acquire = Handle::current().spawn(async move {
        // All that a task may do in a turn.
        for _ in 0..128 {
            tokio::task::consume_budget().await;
        }
        lock.acquire().await.map(drop)
    });
    tokio::task::yield_now().await;
    stage.client.shutdown(Duration::ZERO).await.unwrap();
    let answer = acquire.await.unwrap();
    assert!(matches!(answer, Err(Error::Shutdown)), "{answer:?}");
    assert_eq!(stage.faults.calls(Operation::Attempt), 0);
}

/// The answer that the lock is held comes while the client waits for its requests.
#[tokio::test]
async fn shutdown_waits_until_a_place_is_withdrawn() {
    for polls in 1..=5 {
        let (store, client) = setup();
        let other = LockClient::builder(store.connect()).build().unwrap();
        let _held = lock(&other).acquire().await.unwrap();
        let lock = lock(&client);
        let mut request = pin!(lock.acquire());
        assert!(poll_times(request.as_mut(), polls).await.is_none());
        let shutdown = async {
            client.shutdown(Duration::ZERO).await.unwrap();
            assert_eq!(store.counts().waiters, 0, "after {polls} polls");
        };
        let (answer, ()) = tokio::join!(biased; request, shutdown);
        assert!(matches!(answer, Err(Error::Shutdown)), "{answer:?}");
    }
}

/// The lock comes to a waiter on another thread, at the moment at which its caller leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn drain_waits_for_a_hold_whose_waiter_leaves() {
    let store = MemoryStore::new();
    let client = || LockClient::builder(store.connect()).build().unwrap();
    let (holder, waiter) = (client(), client());
    let (held, waited) = (holder.lock("a").unwrap(), waiter.lock("a").unwrap());
    for round in 0..20_000_u64 {
        let guard = held.acquire().await.unwrap();
        let waiting = waited.clone();
        let mut waiting = tokio::spawn(async move { waiting.acquire().await });
        tokio::task::yield_now().await;
        drop(guard);
        for _ in 0..round % 100 * 40 {
            std::hint::spin_loop();
        }
        waiting.abort();
        if let Ok(Ok(guard)) = (&mut waiting).await {
            drop(guard);
        }
        waiter.drain().await;
        holder.drain().await;
        assert!(store.is_empty(), "round {round}: {:?}", store.counts());
    }
}
