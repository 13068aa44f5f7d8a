//! Locks of several names: what is refused, what is sent, and what a dropped call leaves behind.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::TokioClock;
use lockkit_core::layers::{Faults, Faulty, Operation};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, LockClient, MultiLock};
use tokio::time::{Instant, sleep};

use crate::slow::{Slow, poll_times};
use crate::stage::{S, setup};

fn multi(client: &LockClient, names: &[&str]) -> Result<MultiLock, Error> {
    MultiLock::new(names.iter().map(|name| client.lock(*name).unwrap()))
}

fn counted() -> (MemoryStore, LockClient, Faults) {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let counted = Faulty::new(Arc::new(store.connect()), 1);
    let requests = counted.faults();
    let client = LockClient::builder(counted).clock(clock).build().unwrap();
    (store, client, requests)
}

#[tokio::test(start_paused = true)]
async fn refuses_names_that_cannot_be_held_together() {
    let (store, client) = setup();
    let other = LockClient::new(store.connect()).unwrap();
    let two_clients = MultiLock::new([client.lock("a").unwrap(), other.lock("b").unwrap()]);
    let refused = [
        (multi(&client, &[]), "needs at least one"),
        (multi(&client, &["a", "b", "a"]), "`a` is there twice"),
        (two_clients, "belong to two clients"),
    ];
    for (result, expected) in refused {
        let message = match result {
            Err(error @ Error::InvalidOption { .. }) => error.to_string(),
            other => format!("{other:?}"),
        };
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn sends_one_request_for_each_name_when_all_are_free() {
    let (_store, client, requests) = counted();
    let lock = multi(&client, &["c", "a", "b"]).unwrap();
    let guard = lock.acquire().await.unwrap();
    let names: Vec<_> = guard
        .guards()
        .iter()
        .map(|guard| guard.name().as_str())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(requests.calls(Operation::Attempt), 3);
    guard.release().await.unwrap();
    assert_eq!(requests.calls(Operation::Release), 3);
}

/// `b` is busy: `a` stays, and `c`, which is waited for after it, is given back.
#[tokio::test(start_paused = true)]
async fn try_takes_all_or_nothing() {
    let (store, client) = setup();
    let other = LockClient::new(store.connect()).unwrap();
    let both = multi(&client, &["a", "b"]).unwrap();
    let held = both.try_acquire().await.unwrap().expect("both are free");
    assert_eq!(held.guards().len(), 2);
    held.release().await.unwrap();
    let busy = other.lock("b").unwrap().acquire().await.unwrap();
    assert!(both.try_acquire().await.unwrap().is_none());
    client.drain().await;
    let a = other.lock("a").unwrap().try_acquire().await.unwrap();
    a.expect("it is free").release().await.unwrap();
    busy.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn holds_no_later_name_while_it_waits() {
    let (store, client) = setup();
    let other = LockClient::new(store.connect()).unwrap();
    let busy = other.lock("b").unwrap().acquire().await.unwrap();
    let lock = multi(&client, &["a", "b", "c"]).unwrap();
    let mut waiting = Box::pin(lock.acquire());
    assert!(tokio::time::timeout(S / 10, &mut waiting).await.is_err());
    let is_free = async |name: &str| other.lock(name).unwrap().try_acquire().await.unwrap();
    assert!(is_free("a").await.is_none());
    assert!(is_free("c").await.is_some());
    busy.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn reentry_holds_all_until_the_last_guard_ends() {
    let (store, client) = setup();
    let guard = multi(&client, &["a", "b"])
        .unwrap()
        .acquire()
        .await
        .unwrap();
    let again = guard.reenter().unwrap();
    guard.release().await.unwrap();
    again.check().unwrap();
    assert_eq!(store.counts().holds, 2);
    again.release().await.unwrap();
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn work_in_a_scope_runs_under_all_locks() {
    let (store, client) = setup();
    let lock = multi(&client, &["a", "b"]).unwrap();
    let held = lock.scope(async |_| store.counts().holds).await.unwrap();
    assert_eq!(held, 2);
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn acquire_dropped_after_any_poll_leaves_nothing() {
    for busy in [false, true] {
        for polls in 0..40 {
            let clock = Arc::new(TokioClock::new());
            let store = MemoryStore::builder().clock(clock.clone()).build();
            let other = LockClient::new(store.connect()).unwrap();
            let client = LockClient::builder(Slow::new(store.connect(), 3));
            let client = client.clock(clock).build().unwrap();
            let held = other.lock("b").unwrap().try_acquire().await.unwrap();
            let held = held.filter(|_| busy);
            other.drain().await;
            let lock = multi(&client, &["a", "b", "c"]).unwrap();
            drop(poll_times(lock.acquire(), polls).await);
            client.drain().await;
            let left = store.counts();
            assert_eq!(left.holds, usize::from(busy), "{polls} polls: {left:?}");
            assert_eq!(left.waiters, 0, "{polls} polls: {left:?}");
            drop(held);
        }
    }
}

/// The first requests are refused, so that they are repeated, and later ones are not answered.
#[tokio::test(start_paused = true)]
async fn limit_counts_for_the_first_round_too() {
    for refused in [Duration::ZERO, S / 20, S] {
        let (_store, client, requests) = counted();
        let both = multi(&client, &["a", "b"]).unwrap();
        let began = Instant::now();
        requests.outage();
        let goes_silent = async {
            sleep(refused).await;
            requests.black_hole();
        };
        let (failure, ()) = tokio::join!(
            async {
                let failure = both.acquire_timeout(S / 10).await;
                (failure, began.elapsed())
            },
            goes_silent
        );
        let (failure, took) = failure;
        assert!(matches!(failure, Err(Error::Backend(_))), "{failure:?}");
        // With the default of one request.
        assert!(took <= S / 10 + 2 * S + S / 2, "{took:?}");
    }
}
