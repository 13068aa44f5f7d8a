//! Releases that the caller carries out, on the memory store with paused time.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::TokioClock;
use lockkit_core::layers::{Faults, Faulty, Operation};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, Guard, Lease, Lock, LockClient};
use tokio::time::{sleep, timeout};

const S: Duration = Duration::from_secs(1);

struct Setup {
    store: MemoryStore,
    calls: Faults,
    client: LockClient,
}

fn setup() -> Setup {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let faulty = Faulty::new(Arc::new(store.connect()), 1);
    let calls = faulty.faults();
    let client = LockClient::builder(faulty).clock(clock);
    let client = client.lease(Lease::renewed(3 * S)).build().unwrap();
    Setup {
        store,
        calls,
        client,
    }
}

impl Setup {
    fn lock(&self) -> Lock {
        self.client.lock("a").unwrap()
    }

    async fn guard(&self) -> Guard {
        self.lock().acquire().await.unwrap()
    }

    fn holds(&self) -> usize {
        self.store.counts().holds
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_release_is_carried_out_by_the_client() {
    let setup = setup();
    let release = setup.guard().await.defer_release().unwrap();
    assert_eq!(setup.calls.calls(Operation::Release), 0);
    assert_eq!(setup.holds(), 1, "released before it was dropped");
    drop(release);
    setup.client.drain().await;
    assert_eq!(setup.holds(), 0);
}

#[tokio::test(start_paused = true)]
async fn release_that_is_done_sends_nothing() {
    let setup = setup();
    let release = setup.guard().await.defer_release().unwrap();
    let before = setup.calls.all_calls();
    release.done();
    setup.client.drain().await;
    assert_eq!(setup.calls.all_calls(), before);
    // Nobody released it.
    assert_eq!(setup.holds(), 1);
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_the_release() {
    let setup = setup();
    let release = setup.guard().await.defer_release().unwrap();
    assert!(timeout(S, setup.client.drain()).await.is_err());
    release.done();
    setup.client.drain().await;
}

#[tokio::test(start_paused = true)]
async fn hold_whose_release_is_deferred_is_neither_renewed_nor_lost() {
    let setup = setup();
    let guard = setup.guard().await;
    let lost = guard.lost();
    let release = guard.defer_release().unwrap();
    sleep(S).await;
    assert_eq!(setup.holds(), 1, "it was released");
    assert!(timeout(10 * S, lost).await.is_err(), "it was lost");
    assert_eq!(setup.calls.calls(Operation::Renew), 0);
    assert_eq!(setup.holds(), 0, "its lease has not ended");
    release.done();
}

#[tokio::test(start_paused = true)]
async fn only_the_last_guard_defers_the_release() {
    let setup = setup();
    let first = setup.guard().await;
    let refused = first.reenter().unwrap().defer_release();
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    first.check().unwrap();
    first.defer_release().unwrap().done();
}

#[tokio::test(start_paused = true)]
async fn hold_that_is_kept_after_its_guard_does_not_defer_its_release() {
    let setup = setup();
    let guard = setup.lock().with_min_hold(2 * S).acquire().await.unwrap();
    let refused = guard.defer_release();
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    sleep(S).await;
    assert_eq!(setup.holds(), 1, "it ended before its time");
    let guard = setup.guard().await;
    guard.reenter().unwrap().leak();
    let refused = guard.defer_release();
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    sleep(S).await;
    assert_eq!(setup.holds(), 1, "the leak was released");
    let guard = setup.lock().with_min_hold(S).acquire().await.unwrap();
    sleep(2 * S).await;
    guard.defer_release().unwrap().done();
}

#[tokio::test(start_paused = true)]
async fn hold_that_was_lost_has_no_release() {
    let setup = setup();
    let lock = setup.lock().with_lease(Lease::fixed(S)).unwrap();
    let guard = lock.acquire().await.unwrap();
    sleep(2 * S).await;
    let lost = guard.defer_release();
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    setup.client.drain().await;
}

#[tokio::test]
async fn release_is_carried_out_when_dropped_outside_a_runtime() {
    let setup = setup();
    let release = setup.guard().await.defer_release().unwrap();
    std::thread::spawn(move || drop(release)).join().unwrap();
    setup.client.drain().await;
    assert_eq!(setup.holds(), 0);
}
