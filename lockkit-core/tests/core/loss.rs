//! Leases, renewal and loss, on the memory store with paused time.
#![expect(
    clippy::disallowed_methods,
    reason = "tests fail by panicking and run inside a runtime"
)]

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::{BootClock, Clock as _, ManualClock, Moment, TokioClock};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{DistributedLock, Error, Lease, Lock, LockClient, LossReason, window};
use tokio::time::{Instant, sleep};

use crate::stage::{S, setup};

fn with_ttl(client: &LockClient, lease: Lease) -> Lock {
    client.lock("a").unwrap().with_lease(lease).unwrap()
}

#[tokio::test(start_paused = true)]
async fn hold_is_renewed_while_its_guard_exists() {
    let (store, client) = setup();
    let guard = with_ttl(&client, Lease::renewed(S))
        .acquire()
        .await
        .unwrap();
    for _ in 0..1000 {
        sleep(S).await;
        guard.check().unwrap();
        assert_eq!(store.counts().holds, 1);
    }
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn fixed_lease_ends_and_frees_the_lock() {
    let (store, client) = setup();
    let began = Instant::now();
    let guard = with_ttl(&client, Lease::fixed(3 * S))
        .acquire()
        .await
        .unwrap();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(began.elapsed() >= Duration::from_millis(2900) && began.elapsed() <= 3 * S);
    assert!(matches!(guard.check(), Err(Error::Lost { .. })));
    client.drain().await;
    assert_eq!(
        store.counts().holds,
        0,
        "the guard lives, the hold does not"
    );
    assert!(matches!(
        guard.release().await,
        Err(Error::Lost {
            reason: LossReason::Expired,
            ..
        })
    ));
}

#[tokio::test(start_paused = true)]
async fn fixed_lease_is_extended_but_never_shortened() {
    let (_, client) = setup();
    let guard = with_ttl(&client, Lease::fixed(3 * S))
        .acquire()
        .await
        .unwrap();
    guard.extend(S).await.unwrap();
    assert!(guard.remaining() > 2 * S);
    sleep(2 * S).await;
    guard.extend(10 * S).await.unwrap();
    sleep(9 * S).await;
    guard.check().unwrap();
    sleep(S).await;
    assert!(guard.check().is_err());
    let renewed = client.lock("b").unwrap().acquire().await.unwrap();
    assert!(matches!(
        renewed.extend(S).await,
        Err(Error::InvalidOption { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn waiter_with_a_fixed_lease_gets_all_of_it() {
    let (store, client) = setup();
    let clock = Arc::new(TokioClock::new());
    let other = LockClient::builder(store.connect())
        .clock(clock)
        .build()
        .unwrap();
    let held = other.lock("a").unwrap().acquire().await.unwrap();
    let lock = with_ttl(&client, Lease::fixed(60 * S));
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    sleep(2 * S).await;
    held.release().await.unwrap();
    let guard = waiting.await.unwrap();
    let began = Instant::now();
    guard.lost().await;
    assert!(
        began.elapsed() > 58 * S && began.elapsed() <= 60 * S,
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_renewed_hold() {
    let (_, client) = setup();
    let lock = with_ttl(&client, Lease::renewed(S))
        .with_max_hold(10 * S)
        .unwrap();
    let guard = lock.acquire().await.unwrap();
    let began = Instant::now();
    assert_eq!(guard.lost().await, LossReason::MaxHold);
    assert!(began.elapsed() >= 10 * S && began.elapsed() < 11 * S);
}

#[tokio::test(start_paused = true)]
async fn broken_lock_is_lost_with_the_next_renewal() {
    let (_, client) = setup();
    let lock = with_ttl(&client, Lease::renewed(3 * S));
    let guard = lock.acquire().await.unwrap();
    assert_eq!(
        lock.break_lock().await.unwrap().unwrap().token,
        Some(guard.token())
    );
    let began = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Superseded);
    assert!(began.elapsed() < 2 * S);
    assert!(matches!(guard.reenter(), Err(Error::Lost { .. })));
}

#[tokio::test(start_paused = true)]
async fn ended_session_is_reported_at_once() {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder()
        .clock(clock.clone())
        .sessions(10 * S)
        .build();
    let connection = store.connect();
    let client = LockClient::builder(connection.clone())
        .clock(clock)
        .build()
        .unwrap();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    sleep(S).await;
    let began = Instant::now();
    connection.expire_session();
    assert_eq!(guard.lost().await, LossReason::SessionEnded);
    assert!(began.elapsed() < Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn leaked_hold_ends_with_its_lease() {
    let (store, client) = setup();
    let lock = with_ttl(&client, Lease::renewed(3 * S));
    lock.acquire().await.unwrap().leak();
    sleep(2 * S).await;
    assert_eq!(store.counts().holds, 1);
    assert!(lock.try_acquire().await.unwrap().is_none());
    sleep(S).await;
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn session_store_releases_a_leaked_hold_at_its_deadline() {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder()
        .clock(clock.clone())
        .sessions(10 * S)
        .build();
    let client = LockClient::builder(store.connect())
        .clock(clock)
        .build()
        .unwrap();
    // Another hold keeps the session alive.
    let other = client.lock("b").unwrap().acquire().await.unwrap();
    client.lock("a").unwrap().acquire().await.unwrap().leak();
    sleep(9 * S).await;
    assert_eq!(store.counts().holds, 2);
    sleep(S).await;
    assert_eq!(store.counts().holds, 1);
    other.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn check_knows_of_a_suspend_before_any_timer() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let client = LockClient::builder(store.connect())
        .clock(clock.clone())
        .build()
        .unwrap();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    clock.advance(31 * S);
    assert!(guard.check().is_err());
    let second = client.lock("b").unwrap().acquire().await.unwrap();
    clock.advance(31 * S);
    // No caller reads the clock; the renewal task does, within a second.
    let began = Instant::now();
    assert_eq!(second.lost().await, LossReason::Expired);
    assert!(began.elapsed() <= S, "{:?}", began.elapsed());
}

#[tokio::test]
async fn hold_lasts_until_just_before_the_end_of_its_window() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let client = LockClient::builder(store.connect())
        .clock(clock.clone())
        .build()
        .unwrap();
    let guard = with_ttl(&client, Lease::fixed(30 * S))
        .acquire()
        .await
        .unwrap();
    assert_eq!(guard.remaining(), window(30 * S));
    let instant = Duration::from_nanos(1);
    clock.advance(window(30 * S).saturating_sub(instant));
    guard.check().unwrap();
    assert_eq!(guard.remaining(), instant);
    clock.advance(instant);
    assert!(guard.check().is_err());
    assert_eq!(guard.remaining(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn owner_that_keeps_a_lost_guard_gets_a_new_hold() {
    let (_, client) = setup();
    let lock = with_ttl(&client, Lease::fixed(S))
        .with_owner(&client.owner())
        .unwrap();
    let lost = lock.acquire().await.unwrap();
    lost.lost().await;
    let next = lock.acquire().await.unwrap();
    assert!(next.token() > lost.token());
    next.check().unwrap();
    lost.check().unwrap_err();
}

#[test]
fn stopped_runtime_loses_its_holds() {
    stop(tokio::runtime::Runtime::new().unwrap());
}

/// The tasks of the client have not begun when their runtime ends.
#[test]
fn runtime_that_never_ran_loses_its_holds() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    stop(builder.enable_all().build().unwrap());
}

fn stop(runtime: tokio::runtime::Runtime) {
    let client = {
        let _inside = runtime.enter();
        LockClient::new(MemoryStore::new()).unwrap()
    };
    let guard = runtime
        .block_on(client.lock("a").unwrap().acquire())
        .unwrap();
    let lost = guard.lost();
    drop(runtime);
    let elsewhere = tokio::runtime::Runtime::new().unwrap();
    let lost = elsewhere.block_on(async { tokio::time::timeout(S, lost).await });
    assert_eq!(lost, Ok(LossReason::Shutdown));
    // Nor does it panic here, without any runtime.
    drop(guard);
    let waiting = client.lock("a").unwrap();
    let answer =
        elsewhere.block_on(async { tokio::time::timeout(S, waiting.acquire()).await.unwrap() });
    assert!(matches!(answer, Err(Error::Shutdown)), "{answer:?}");
}

/// No thread drives the client's runtime any more; the task that waits for the loss is on another.
#[test]
fn blocked_runtime_delays_no_loss() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let still = builder.enable_all().build().unwrap();
    let client = {
        let _inside = still.enter();
        LockClient::new(MemoryStore::new()).unwrap()
    };
    let lock = with_ttl(&client, Lease::renewed(Duration::from_millis(300)));
    let guard = still.block_on(lock.acquire()).unwrap();
    let elsewhere = tokio::runtime::Runtime::new().unwrap();
    let lost = elsewhere.block_on(async { tokio::time::timeout(S, guard.lost()).await });
    assert_eq!(lost, Ok(LossReason::Expired));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_loss_does_not_keep_the_client() {
    let store: Arc<dyn DistributedLock> = Arc::new(MemoryStore::new());
    let client = LockClient::builder_arc(Arc::clone(&store)).build().unwrap();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn(guard.lost());
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    drop(client);
    // The tasks of the client end with its last clone, and drop the store.
    sleep(2 * S).await;
    assert_eq!(Arc::strong_count(&store), 1);
    assert!(!waiting.is_finished(), "it was released and not lost");
    waiting.abort();
}

#[test]
fn the_boot_clock_goes_forward_and_is_not_the_wall_clock() {
    let clock = BootClock::default();
    let (first, second) = (clock.now(), clock.now());
    assert!(first <= second);
    // Less than fifty years of uptime: a wall clock would show more.
    assert!(second.since(Moment::from_nanos(0)) < Duration::from_secs(50 * 365 * 86_400));
}

#[test]
fn moments_saturate() {
    let end = Moment::from_nanos(u64::MAX);
    assert_eq!(end + Duration::MAX, end);
    assert_eq!(Moment::from_nanos(1).since(end), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn released_hold_is_no_longer_watched() {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder()
        .clock(clock.clone())
        .sessions(10 * S)
        .build();
    let store: Arc<dyn DistributedLock> = Arc::new(store.connect());
    let client = LockClient::builder_arc(Arc::clone(&store))
        .clock(clock)
        .build()
        .unwrap();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    // A hold of this age is watched.
    sleep(S).await;
    guard.release().await.unwrap();
    drop(client);
    sleep(2 * S).await;
    assert_eq!(Arc::strong_count(&store), 1, "a task keeps the client");
}

#[tokio::test(start_paused = true)]
async fn longer_max_hold_prolongs_no_lease() {
    let (_, client) = setup();
    let lock = with_ttl(&client, Lease::fixed(3 * S))
        .with_max_hold(10 * S)
        .unwrap();
    let guard = lock.acquire().await.unwrap();
    let began = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    assert!(began.elapsed() <= 3 * S, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn note_is_shown_and_finds_that_the_hold_has_ended() {
    let (_, client) = setup();
    let lock = client.lock("a").unwrap();
    let guard = lock.acquire().await.unwrap();
    guard.note("at 40 %").await.unwrap();
    let state = lock.inspect().await.unwrap().unwrap();
    assert_eq!(state.holders[0].note.as_deref(), Some("at 40 %"));
    lock.break_lock().await.unwrap();
    let late = guard.note("at 50 %").await;
    assert!(matches!(late, Err(Error::Lost { .. })), "{late:?}");
}

/// The work has ended before.
#[tokio::test(start_paused = true)]
async fn scope_reports_a_loss_that_the_release_finds() {
    let (store, client) = setup();
    let other = LockClient::new(store.connect()).unwrap();
    let broken = other.lock("a").unwrap();
    let lock = client.lock("a").unwrap();
    let work = lock.scope(async |_| broken.break_lock().await.map(drop));
    let done = work.await;
    assert!(matches!(done, Err(Error::Lost { .. })), "{done:?}");
}
