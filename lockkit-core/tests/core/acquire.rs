//! Acquire, release and waiting, on the memory store with paused time.
#![expect(
    clippy::disallowed_methods,
    reason = "tests fail by panicking and run inside a runtime"
)]

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use lockkit_core::clock::TokioClock;
use lockkit_core::layers::{Fault, Faulty, Operation, Rule};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, Lease, LockClient, Waiting};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{S, setup};

/// Another client of the same store, as another process would be.
fn another(store: &MemoryStore, like: &Arc<TokioClock>) -> LockClient {
    LockClient::builder(store.connect())
        .clock(like.clone())
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn second_client_waits_until_the_first_releases() {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let (first, second) = (another(&store, &clock), another(&store, &clock));
    let held = first.lock("a").unwrap().acquire().await.unwrap();
    let lock = second.lock("a").unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    sleep(10 * S).await;
    assert!(!waiting.is_finished());
    let began = Instant::now();
    let token = held.token();
    held.release().await.unwrap();
    let next = waiting.await.unwrap();
    let shown = format!("{next:?}");
    assert!(shown.contains(&next.token().to_string()), "{shown}");
    assert!(
        began.elapsed() < Duration::from_millis(1),
        "the grant is pushed"
    );
    assert!(next.token() > token);
    next.release().await.unwrap();
    assert!(store.is_empty());
}

/// It is held or waited for by the client itself; but not by a ticket that it only has to withdraw.
#[tokio::test(start_paused = true)]
async fn try_asks_the_store_unless_its_client_has_the_lock() {
    let faulty = Faulty::new(Arc::new(MemoryStore::new()), 1);
    let faults = faulty.faults();
    let lock = LockClient::new(faulty).unwrap().lock("a").unwrap();
    let attempts = || faults.calls(Operation::Attempt);
    let held = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(attempts(), 1);
    held.release().await.unwrap();

    faults.inject(Rule::new(Fault::Hang).on(Operation::Attempt));
    let limit = Duration::from_millis(50);
    let (waiting, other) = (lock.clone(), lock.clone());
    let waiting = tokio::spawn(async move { timeout(3 * limit, waiting.acquire()).await });
    sleep(limit).await;
    assert!(other.try_acquire().await.unwrap().is_none());
    assert_eq!(attempts(), 2);
    assert!(waiting.await.unwrap().is_err());
    assert!(timeout(limit, lock.try_acquire()).await.is_err());
    assert_eq!(attempts(), 3);
}

/// A watch belongs to a ticket and is opened once; where waiters poll there is none.
#[tokio::test(start_paused = true)]
async fn waiter_opens_one_watch_where_the_store_pushes() {
    for (waiting, watches) in [(Waiting::Push, 1), (Waiting::Poll, 0)] {
        let clock = Arc::new(TokioClock::new());
        let store = MemoryStore::builder().clock(clock.clone()).waiting(waiting);
        let store = store.build();
        let faulty = Faulty::new(Arc::new(store.connect()), 1);
        let faults = faulty.faults();
        let second = LockClient::builder(faulty).clock(clock.clone()).build();
        let held = another(&store, &clock).lock("a").unwrap().acquire().await;
        let lock = second.unwrap().lock("a").unwrap();
        assert!(lock.acquire_timeout(20 * S).await.is_err());
        assert!(faults.calls(Operation::Attempt) > 3, "{waiting:?}");
        assert_eq!(faults.calls(Operation::Watch), watches, "{waiting:?}");
        drop(held);
    }
}

#[tokio::test(start_paused = true)]
async fn ticket_is_withdrawn_when_its_last_waiter_leaves() {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let (first, second) = (another(&store, &clock), another(&store, &clock));
    let held = first.lock("a").unwrap().acquire().await.unwrap();
    let lock = second.lock("a").unwrap();
    assert!(timeout(S, lock.acquire()).await.is_err());
    let began = Instant::now();
    second.drain().await;
    assert!(began.elapsed() < Duration::from_millis(1));
    assert_eq!(store.counts().waiters, 0);
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_client_share_one_queue() {
    let (store, client) = setup();
    let lock = client.lock("a").unwrap();
    let held = lock.acquire().await.unwrap();
    let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..64 {
        let (lock, order) = (lock.clone(), order.clone());
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.send((n, guard.token())).unwrap();
            guard.release().await.unwrap();
        });
        sleep(Duration::from_millis(1)).await;
        // However many wait, the store sees one.
        assert_eq!(store.counts().waiters, 1);
    }
    held.release().await.unwrap();
    let mut last = None;
    for n in 0..64 {
        let (who, token) = served.recv().await.unwrap();
        assert_eq!(who, n);
        assert!(Some(token) > last);
        last = Some(token);
    }
    client.drain().await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn wait_ends_at_its_limit() {
    let (store, client) = setup();
    let lock = client.lock("a").unwrap();
    let held = lock.acquire().await.unwrap();
    let began = Instant::now();
    let late = lock.acquire_timeout(5 * S).await.unwrap_err();
    assert!(
        matches!(&late, Error::Timeout { waited, .. } if *waited >= 5 * S),
        "{late}"
    );
    assert!(began.elapsed() < 6 * S);
    client.drain().await;
    assert_eq!(store.counts().waiters, 0, "no waiter is left in the queue");
    held.release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn cancelled_waiter_passes_its_turn_on() {
    let (_, client) = setup();
    let lock = client.lock("a").unwrap();
    let held = lock.acquire().await.unwrap();
    let (first, second) = (lock.clone(), lock.clone());
    let first = tokio::spawn(async move { first.acquire().await });
    sleep(S).await;
    let second = tokio::spawn(async move { second.acquire().await.unwrap().token() });
    sleep(S).await;
    first.abort();
    let token = held.token();
    held.release().await.unwrap();
    assert!(timeout(S, second).await.expect("served at once").unwrap() > token);
}

#[tokio::test(start_paused = true)]
async fn impossible_lease_is_refused_when_it_is_set() {
    let (_, client) = setup();
    let lock = client.lock("a").unwrap();
    let error = lock
        .clone()
        .with_lease(Lease::renewed(Duration::from_millis(1)))
        .unwrap_err();
    assert!(error.to_string().contains("1ms"), "{error}");
    lock.with_lease(Lease::renewed(10 * S)).unwrap();
}

#[test]
fn calls_outside_a_runtime_return_no_runtime() {
    assert!(matches!(
        LockClient::new(MemoryStore::new()),
        Err(Error::NoRuntime)
    ));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = {
        let _inside = runtime.enter();
        LockClient::new(MemoryStore::new()).unwrap()
    };
    let lock = client.lock("a").unwrap();
    let mut acquire = std::pin::pin!(lock.acquire());
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(
        acquire.as_mut().poll(&mut context),
        Poll::Ready(Err(Error::NoRuntime))
    ));
    let mut shutdown = std::pin::pin!(client.shutdown(S));
    assert!(matches!(
        shutdown.as_mut().poll(&mut context),
        Poll::Ready(Err(Error::NoRuntime))
    ));
    let mut leaders = client.election("a").unwrap().observe();
    let mut changed = std::pin::pin!(leaders.changed());
    assert!(matches!(
        changed.as_mut().poll(&mut context),
        Poll::Ready(Err(Error::NoRuntime))
    ));
    // Where no timer works, a wait cannot end in time.
    let bare = tokio::runtime::Builder::new_current_thread();
    let bare = { bare }.build().unwrap();
    let waited = bare.block_on(lock.acquire_timeout(S));
    assert!(matches!(waited, Err(Error::NoRuntime)), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_waits_and_holds_and_refuses_acquires() {
    let (store, client) = setup();
    let lock = client.lock("a").unwrap();
    let guard = lock.acquire().await.unwrap();
    let other = lock.clone();
    let waiting = tokio::spawn(async move { other.acquire().await.map(drop) });
    sleep(S).await;
    let lost = guard.lost();
    let closing = client.clone();
    let closing = tokio::spawn(async move { closing.shutdown(2 * S).await });
    // Waiters fail at once, and not when the holds end.
    let answer = timeout(S, waiting).await.unwrap();
    assert!(matches!(answer.unwrap(), Err(Error::Shutdown)));
    guard.check().unwrap();
    closing.await.unwrap().unwrap();
    assert_eq!(lost.await, lockkit_core::LossReason::Shutdown);
    assert!(matches!(lock.acquire().await, Err(Error::Shutdown)));
    assert!(store.is_empty());
}

/// Polls a shutdown at the moment at which it is woken.
struct Meddler {
    closing: Mutex<Pin<Box<dyn Future<Output = lockkit_core::Result<()>> + Send>>>,
    closed: AtomicBool,
}

impl Meddler {
    fn poll(&self) -> bool {
        let mut closing = self.closing.lock().unwrap();
        let poll = closing
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        poll.is_ready()
    }
}

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        self.closed.fetch_or(self.poll(), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_a_release_that_is_about_to_begin() {
    let (store, client) = setup();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    let closing = client.clone();
    let meddler = Arc::new(Meddler {
        closing: Mutex::new(Box::pin(async move { closing.shutdown(60 * S).await })),
        closed: AtomicBool::new(false),
    });
    assert!(!meddler.poll());
    let waker = Waker::from(Arc::clone(&meddler));
    let mut lost = Box::pin(guard.lost());
    let poll = lost.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(poll.is_pending());
    drop(guard);
    assert!(!meddler.closed.load(Ordering::Relaxed));
    client.drain().await;
    assert!(meddler.poll() && store.is_empty());
}

#[tokio::test]
async fn scope_runs_work_under_the_lock_and_is_send() {
    let client = LockClient::new(MemoryStore::new()).unwrap();
    let lock = client.lock("a").unwrap();
    let task = tokio::spawn(async move {
        let inner = lock.clone();
        lock.scope(async |guard| {
            assert!(inner.try_acquire().await.unwrap().is_none());
            guard.token()
        })
        .await
    });
    task.await.unwrap().unwrap();
    client.drain().await;
    assert!(client.list("").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn scope_can_try_or_wait_with_a_limit() {
    let (store, client) = setup();
    let lock = client.lock("a").unwrap();
    assert_eq!(lock.try_scope(async |_| 1).await.unwrap(), Some(1));
    assert_eq!(lock.scope_timeout(S, async |_| 2).await.unwrap(), 2);
    let held = lock.acquire().await.unwrap();
    assert_eq!(lock.try_scope(async |_| 3).await.unwrap(), None);
    let late = lock.scope_timeout(S, async |_| 4).await.unwrap_err();
    assert!(matches!(late, Error::Timeout { .. }), "{late:?}");
    held.release().await.unwrap();
    client.drain().await;
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn infinite_limits_are_accepted() {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let client = LockClient::builder(store.connect())
        .clock(clock)
        .timeout(Duration::MAX)
        .outage(Duration::MAX)
        .build()
        .unwrap();
    let lock = client.lock("a").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    let guard = lock.acquire_timeout(Duration::MAX).await.unwrap();
    let other = client.lock("b").unwrap().try_acquire().await.unwrap();
    drop(other.expect("it is free"));
    assert!(matches!(
        lock.acquire_timeout(S).await,
        Err(Error::Timeout { .. })
    ));
    drop(guard);
    client.shutdown(S).await.unwrap();
    assert!(store.is_empty());
}

#[tokio::test]
async fn request_timeout_of_zero_is_refused() {
    let builder = LockClient::builder(MemoryStore::new());
    let refused = builder.timeout(Duration::ZERO).build();
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
}

#[test]
fn runtime_without_timers_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let refused = LockClient::new(MemoryStore::new());
    assert!(matches!(refused, Err(Error::NoRuntime)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_leaked_holds() {
    let (_, client) = setup();
    client.lock("a").unwrap().acquire().await.unwrap().leak();
    let kept = client.lock("b").unwrap().acquire().await.unwrap();
    let again = kept.reenter().unwrap();
    again.leak();
    let began = Instant::now();
    let release = async {
        sleep(S).await;
        kept.release().await.unwrap();
    };
    let (closed, ()) = tokio::join!(client.shutdown(20 * S), release);
    closed.unwrap();
    // It waits for the guard, and for nothing after it.
    let waited = began.elapsed();
    assert!(waited >= S && waited < 2 * S, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn waiter_that_polls_slows_down() {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder()
        .clock(clock.clone())
        .waiting(Waiting::Poll)
        .build();
    let other = another(&store, &clock);
    let _held = other.lock("a").unwrap().acquire().await.unwrap();
    let counted = Faulty::new(Arc::new(store.connect()), 1);
    let requests = counted.faults();
    let client = LockClient::builder(counted).clock(clock).build();
    let lock = client.unwrap().lock("a").unwrap();
    let waited = lock.acquire_timeout(60 * S).await;
    assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
    // From 50 ms the pauses double to a second, and are spread over their upper half.
    let attempts = requests.calls(Operation::Attempt);
    assert!((60..=130).contains(&attempts), "{attempts} attempts");
}
