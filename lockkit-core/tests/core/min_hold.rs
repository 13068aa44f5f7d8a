//! Locks that are kept for some time after their last guard, on the memory store with paused time.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::ManualClock;
use lockkit_core::layers::{Fault, Operation, Rule};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, Lease, Lock, LockClient, LossReason, MultiLock, Outcome};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{S, Stage, stage};

impl Stage {
    fn lock(&self, lease: Lease, least: Duration) -> Lock {
        let lock = self.client.lock("a").unwrap().with_lease(lease).unwrap();
        lock.with_min_hold(least)
    }

    /// How long after the beginning the other client gets the lock.
    async fn freed(&self) -> Duration {
        let lock = self.other.lock("a").unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
        self.began.elapsed()
    }
}

fn near(time: Duration, expected: Duration) {
    let late = time.saturating_sub(expected);
    assert!(
        time >= expected && late < Duration::from_millis(300),
        "{time:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn lock_is_kept_until_the_shortest_hold_time_has_passed() {
    for dropped in [false, true] {
        for lease in [Lease::renewed(9 * S), Lease::renewed(300 * S)] {
            let stage = stage(MemoryStore::builder());
            let lock = stage.lock(lease, 50 * S);
            let guard = lock.acquire().await.unwrap();
            sleep(S).await;
            if dropped {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
            assert_eq!(stage.began.elapsed(), S, "the release waits for nothing");
            assert!(lock.try_acquire().await.unwrap().is_none());
            near(stage.freed().await, 50 * S);
            assert!(stage.store.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hold_that_lasts_longer_is_released_at_once() {
    let stage = stage(MemoryStore::builder());
    let guard = stage.lock(Lease::default(), 5 * S).acquire().await.unwrap();
    sleep(6 * S).await;
    guard.release().await.unwrap();
    near(stage.freed().await, 6 * S);
}

#[tokio::test(start_paused = true)]
async fn leaked_guard_keeps_the_lock_for_its_shortest_hold_time() {
    let stage = stage(MemoryStore::builder());
    let lock = stage.lock(Lease::fixed(9 * S), 50 * S);
    let fail = Rule::new(Fault::Fail(Outcome::Unavailable)).on(Operation::Renew);
    stage.faults.inject(fail);
    lock.acquire().await.unwrap().leak();
    let drained = timeout(2 * S, stage.client.drain()).await;
    assert!(drained.is_err(), "the store does not know it yet");
    stage.faults.heal();
    timeout(S, stage.client.drain()).await.unwrap();
    near(stage.freed().await, 50 * S);
}

#[tokio::test(start_paused = true)]
async fn other_guards_keep_the_lock() {
    let stage = stage(MemoryStore::builder());
    let owner = stage.client.owner();
    let lock = stage.lock(Lease::renewed(9 * S), 5 * S);
    let lock = lock.with_owner(&owner).unwrap();
    let guard = lock.acquire().await.unwrap();
    let again = lock.acquire().await.unwrap();
    guard.release().await.unwrap();
    sleep(20 * S).await;
    again.check().unwrap();
    again.release().await.unwrap();
    near(stage.freed().await, 20 * S);
    // A hold without guards is not re-entered.
    let guard = lock.acquire().await.unwrap();
    let (token, began) = (guard.token(), Instant::now());
    drop(guard);
    let next = lock.acquire().await.unwrap();
    assert!(next.token() > token);
    near(began.elapsed(), 5 * S);
}

#[tokio::test(start_paused = true)]
async fn ended_process_leaves_a_lease_until_the_shortest_hold_time() {
    for shut_down in [false, true] {
        let stage = stage(MemoryStore::builder());
        let lock = stage.lock(Lease::renewed(9 * S), 50 * S);
        let guard = lock.acquire().await.unwrap();
        sleep(S).await;
        guard.release().await.unwrap();
        if shut_down {
            stage.client.shutdown(30 * S).await.unwrap();
        } else {
            stage.client.drain().await;
        }
        assert_eq!(stage.began.elapsed(), S, "it waits for an answer only");
        // Nothing of the client reaches the store any more.
        stage.faults.black_hole();
        let freed = stage.freed().await;
        assert!(freed >= 50 * S && freed <= 53 * S + S / 2, "{freed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ended_process_shortens_no_longer_lease() {
    let stage = stage(MemoryStore::builder());
    let guard = stage.lock(Lease::renewed(60 * S), 5 * S);
    guard.acquire().await.unwrap().release().await.unwrap();
    stage.faults.reset_counts();
    stage.client.shutdown(S).await.unwrap();
    assert_eq!(
        stage.began.elapsed(),
        Duration::ZERO,
        "it waits for nothing"
    );
    assert_eq!(stage.faults.calls(Operation::Renew), 0, "nothing is needed");
    let freed = stage.freed().await;
    assert!(freed >= 60 * S && freed <= 64 * S, "{freed:?}");
}

#[tokio::test(start_paused = true)]
async fn drain_waits_until_the_store_has_set_the_last_lease() {
    let stage = stage(MemoryStore::builder());
    let lock = stage.lock(Lease::renewed(9 * S), 50 * S);
    let guard = lock.acquire().await.unwrap();
    let fail = Rule::new(Fault::Fail(Outcome::Unavailable)).on(Operation::Renew);
    stage.faults.inject(fail);
    drop(guard);
    assert!(timeout(2 * S, stage.client.drain()).await.is_err());
    stage.faults.heal();
    timeout(S, stage.client.drain()).await.unwrap();
    near(stage.freed().await, 50 * S);
}

/// Where the lease ends the hold and is long enough already, or where a guard was leaked, nothing is left to do.
#[tokio::test(start_paused = true)]
async fn drain_waits_for_no_hold_that_ends_by_itself() {
    let stage = stage(MemoryStore::builder());
    let lock = stage.lock(Lease::fixed(60 * S), 50 * S);
    lock.acquire().await.unwrap().release().await.unwrap();
    timeout(S, stage.client.drain()).await.unwrap();
    near(stage.freed().await, 50 * S);
    let leaked = stage.client.lock("leaked").unwrap();
    leaked.acquire().await.unwrap().leak();
    timeout(S, stage.client.drain()).await.unwrap();
    let sessions = self::stage(MemoryStore::builder().sessions(10 * S));
    let leaked = sessions.client.lock("leaked").unwrap();
    leaked.acquire().await.unwrap().leak();
    timeout(S, sessions.client.drain()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn drain_on_a_session_store_waits_for_the_shortest_hold_time() {
    let stage = stage(MemoryStore::builder().sessions(10 * S));
    let lock = stage.lock(Lease::renewed(10 * S), 50 * S);
    lock.acquire().await.unwrap().release().await.unwrap();
    stage.client.drain().await;
    near(stage.began.elapsed(), 50 * S);
    near(stage.freed().await, 50 * S);
}

#[tokio::test(start_paused = true)]
async fn shutdown_on_a_session_store_waits_for_its_grace() {
    for (grace, expected) in [(20 * S, 20 * S), (80 * S, 50 * S)] {
        let stage = stage(MemoryStore::builder().sessions(10 * S));
        let lock = stage.lock(Lease::renewed(10 * S), 50 * S);
        lock.acquire().await.unwrap().release().await.unwrap();
        stage.client.shutdown(grace).await.unwrap();
        near(stage.began.elapsed(), expected);
        near(stage.freed().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_hold_is_not_kept() {
    let stage = stage(MemoryStore::builder());
    let lock = stage.lock(Lease::fixed(5 * S), 50 * S);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
    assert!(stage.freed().await < 6 * S);
}

#[tokio::test(start_paused = true)]
async fn dropped_client_still_keeps_the_lock() {
    let stage = stage(MemoryStore::builder());
    let lock = stage.lock(Lease::renewed(9 * S), 50 * S);
    drop(lock.acquire().await.unwrap());
    drop(lock);
    let Stage {
        store,
        client,
        other,
        began,
        ..
    } = stage;
    drop(client);
    let guard = other.lock("a").unwrap().acquire().await.unwrap();
    near(began.elapsed(), 50 * S);
    drop(guard);
    other.drain().await;
    assert!(store.is_empty());
}

#[tokio::test]
async fn hold_that_ends_at_its_shortest_time_is_released_at_once() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let client = LockClient::builder(store.connect()).clock(clock.clone());
    let client = client.build().unwrap();
    for (lived, held) in [(5 * S, 0), (5 * S - Duration::from_nanos(1), 1)] {
        let lock = client.lock("a").unwrap().with_min_hold(5 * S);
        let guard = lock.acquire().await.unwrap();
        clock.advance(lived);
        guard.release().await.unwrap();
        assert_eq!(store.counts().holds, held);
    }
    let lock = client.lock("b").unwrap().with_min_hold(5 * S);
    let guard = lock.acquire().await.unwrap();
    clock.advance(5 * S);
    guard.defer_release().unwrap().done();
}

#[tokio::test(start_paused = true)]
async fn grant_that_is_not_handed_out_is_not_kept() {
    let stage = stage(MemoryStore::builder());
    let kept = stage.lock(Lease::default(), 50 * S);
    let other = stage.other.lock("a").unwrap();
    // A waiter that goes at the moment of its grant.
    let guard = other.acquire().await.unwrap();
    let mut waiting = Box::pin(kept.acquire());
    assert!(timeout(S, &mut waiting).await.is_err());
    guard.release().await.unwrap();
    sleep(S).await;
    drop(waiting);
    stage.client.drain().await;
    let guard = other.try_acquire().await.unwrap();
    guard.expect("it is free").release().await.unwrap();
    // One of several locks, where another one is held.
    let busy = stage.other.lock("busy").unwrap().acquire().await.unwrap();
    let both = MultiLock::new([kept, stage.client.lock("busy").unwrap()]).unwrap();
    assert!(both.try_acquire().await.unwrap().is_none());
    assert!(both.acquire_timeout(S).await.is_err());
    stage.client.drain().await;
    let guard = other.try_acquire().await.unwrap();
    guard.expect("it is free").release().await.unwrap();
    busy.release().await.unwrap();
    // It is kept where both are.
    let began = Instant::now();
    both.acquire().await.unwrap().release().await.unwrap();
    drop(stage.other.lock("busy").unwrap().acquire().await.unwrap());
    drop(other.acquire().await.unwrap());
    near(began.elapsed(), 50 * S);
}

#[tokio::test(start_paused = true)]
async fn several_locks_together_keep_none_that_their_owner_had_before() {
    let stage = stage(MemoryStore::builder());
    let owner = stage.client.owner();
    let [a, b] = ["a", "b"].map(|name| stage.client.lock(name).unwrap());
    let before = a
        .clone()
        .with_owner(&owner)
        .unwrap()
        .acquire()
        .await
        .unwrap();
    let both = [a, b].map(|lock| lock.with_owner(&owner).unwrap().with_min_hold(50 * S));
    let both = MultiLock::new(both).unwrap();
    both.acquire().await.unwrap().release().await.unwrap();
    before.release().await.unwrap();
    near(stage.freed().await, Duration::ZERO);
    let b = stage.other.lock("b").unwrap();
    drop(b.acquire().await.unwrap());
    near(stage.began.elapsed(), 50 * S);
}

#[tokio::test(start_paused = true)]
async fn hold_that_is_made_one_to_read_is_kept_as_long() {
    let stage = stage(MemoryStore::builder());
    let write = stage.client.rw_lock("a").unwrap().write();
    let guard = write.with_min_hold(50 * S).acquire().await.unwrap();
    sleep(S).await;
    drop(guard.downgrade().await.unwrap());
    near(stage.freed().await, 50 * S);
}

#[tokio::test(start_paused = true)]
async fn longest_hold_time_ends_a_kept_lock_too() {
    let stage = stage(MemoryStore::builder());
    let lock = stage.lock(Lease::renewed(9 * S), 20 * S);
    let lock = lock.with_max_hold(2 * S).unwrap();
    drop(lock.acquire().await.unwrap());
    near(stage.freed().await, 2 * S);
}

#[tokio::test(start_paused = true)]
async fn lease_without_an_end_is_released_like_another() {
    for sessions in [true, false] {
        let builder = MemoryStore::builder();
        let stage = stage(if sessions {
            builder.sessions(10 * S)
        } else {
            builder
        });
        let lock = stage.client.lock("a").unwrap();
        let longest = if sessions {
            Duration::MAX
        } else {
            stage.client.backend().capabilities().max_ttl
        };
        drop(
            lock.with_lease(Lease::fixed(longest))
                .unwrap()
                .acquire()
                .await
                .unwrap(),
        );
        stage.client.drain().await;
        assert!(stage.store.is_empty());
    }
}
