//! Leases: what is promised to the user is what every renewal asks for, and the store never shortens.
#![expect(
    clippy::disallowed_methods,
    reason = "tests fail by panicking and run inside a runtime"
)]

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::ManualClock;
use lockkit_core::contract::{Attempt, DistributedLock, Renewal, Ticket};
use lockkit_core::layers::{Fault, Faulty, Operation, Rule};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{ClientId, Error, Guard, HolderId, Lease, LockClient, LockName};
use tokio::time::{Instant, sleep, timeout};

use crate::stage::{S, Stage, stage};

const MS: Duration = Duration::from_millis(1);

impl Stage {
    fn leases() -> Self {
        stage(MemoryStore::builder())
    }

    fn sessions(ttl: Duration) -> Self {
        stage(MemoryStore::builder().sessions(ttl))
    }

    async fn fixed(&self, ttl: Duration) -> Guard {
        let lock = self.client.lock("a").unwrap();
        let lock = lock.with_lease(Lease::fixed(ttl)).unwrap();
        lock.acquire().await.unwrap()
    }

    /// A guard with a fixed lease that waited, so that its grant was pushed with a short lease.
    async fn pushed(&self, ttl: Duration) -> Guard {
        let held = self.other.lock("a").unwrap().acquire().await.unwrap();
        let lock = self.client.lock("a").unwrap();
        let lock = lock.with_lease(Lease::fixed(ttl)).unwrap();
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        sleep(2 * S).await;
        held.release().await.unwrap();
        waiting.await.unwrap()
    }

    /// Whether the other client gets the lock.
    async fn is_free(&self) -> bool {
        let lock = self.other.lock("a").unwrap();
        lock.try_acquire().await.unwrap().is_some()
    }

    /// The guard holds for `time`, no other client does, and soon after the time both end.
    async fn holds_for(&self, guard: &Guard, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() + S < end {
            guard.check().unwrap();
            assert!(!self.is_free().await, "two hold at once");
            sleep(S / 2).await;
        }
        sleep(S * 3 / 2).await;
        assert!(guard.check().is_err(), "holds for too long");
        self.client.drain().await;
        assert!(self.is_free().await, "held after the guard has ended");
    }
}

fn slow(reply: Duration) -> Rule {
    let slow = Fault::SlowReply {
        min: reply,
        max: reply,
    };
    Rule::new(slow).on(Operation::Renew)
}

#[tokio::test(start_paused = true)]
async fn extension_of_a_pushed_grant_survives_its_first_renewal() {
    let stage = Stage::leases();
    let guard = stage.pushed(30 * S).await;
    sleep(S / 2).await;
    guard.extend(120 * S).await.unwrap();
    stage.holds_for(&guard, 119 * S).await;
}

#[tokio::test(start_paused = true)]
async fn longer_of_two_overlapping_extensions_wins() {
    for sessions in [false, true] {
        let stage = if sessions {
            Stage::sessions(5 * S)
        } else {
            Stage::leases()
        };
        let guard = stage.fixed(5 * S).await;
        stage.faults.inject(slow(50 * MS));
        let (long, short) = tokio::join!(guard.extend(60 * S), guard.extend(10 * S));
        long.unwrap();
        short.unwrap();
        stage.holds_for(&guard, 60 * S).await;
    }
}

#[tokio::test(start_paused = true)]
async fn late_extension_shortens_no_lease() {
    let stage = Stage::leases();
    let guard = stage.fixed(5 * S).await;
    let late = Fault::Late {
        min: 2 * S,
        max: 2 * S,
    };
    let late = Rule::new(late).on(Operation::Renew).times(1);
    stage.faults.inject(late);
    guard.extend(10 * S).await.unwrap_err();
    guard.extend(60 * S).await.unwrap();
    stage.faults.settled().await;
    stage.holds_for(&guard, 58 * S).await;
}

#[tokio::test(start_paused = true)]
async fn extension_without_a_reply_is_requested_again() {
    for sessions in [false, true] {
        let stage = if sessions {
            Stage::sessions(5 * S)
        } else {
            Stage::leases()
        };
        let guard = stage.fixed(5 * S).await;
        let lost = Rule::new(Fault::DropReply).on(Operation::Renew).times(1);
        stage.faults.inject(lost);
        guard.extend(60 * S).await.unwrap_err();
        stage.holds_for(&guard, 60 * S).await;
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_extension_makes_no_second_holder() {
    let stage = Stage::leases();
    let guard = stage.fixed(5 * S).await;
    stage.faults.inject(slow(S));
    timeout(S / 2, guard.extend(20 * S)).await.unwrap_err();
    for _ in 0..60 {
        sleep(S / 2).await;
        assert!(
            guard.check().is_err() || !stage.is_free().await,
            "two hold at once"
        );
    }
    assert!(guard.check().is_err());
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn fixed_lease_on_an_old_session_lasts_its_whole_time() {
    let stage = Stage::sessions(10 * S);
    drop(stage.fixed(10 * S).await);
    // Not so old that the next acquire confirms it.
    sleep(2_400 * MS).await;
    let guard = stage.fixed(10 * S).await;
    stage.holds_for(&guard, 10 * S).await;
}

#[tokio::test(start_paused = true)]
async fn fixed_lease_outlasts_a_shorter_session() {
    let stage = Stage::sessions(10 * S);
    let guard = stage.fixed(60 * S).await;
    stage.holds_for(&guard, 60 * S).await;
}

#[tokio::test(start_paused = true)]
async fn release_of_an_extended_lease_is_repeated_until_it_ends() {
    let stage = Stage::leases();
    let guard = stage.fixed(S).await;
    guard.extend(3600 * S).await.unwrap();
    stage.faults.outage();
    drop(guard);
    sleep(20 * S).await;
    stage.faults.heal();
    timeout(10 * S, stage.client.drain()).await.unwrap();
    assert!(stage.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn release_after_an_unanswered_extension_is_repeated_until_it_ends() {
    let stage = Stage::leases();
    let guard = stage.fixed(S).await;
    let lost = Rule::new(Fault::DropReply).on(Operation::Renew).times(1);
    stage.faults.inject(lost);
    guard.extend(3600 * S).await.unwrap_err();
    stage.faults.outage();
    drop(guard);
    sleep(20 * S).await;
    stage.faults.heal();
    timeout(10 * S, stage.client.drain()).await.unwrap();
    assert!(stage.store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn memory_store_never_shortens_a_lease() {
    let stage = Stage::leases();
    let holder = HolderId::new(ClientId::random(), 1);
    let ticket = Ticket::new(LockName::new("a").unwrap(), holder, 60 * S);
    let short = ticket.clone().with_ttl(S);
    assert!(matches!(
        stage.store.attempt(&ticket).await.unwrap(),
        Attempt::Granted(_)
    ));
    let again = stage.store.attempt(&short).await.unwrap();
    assert!(matches!(again, Attempt::Granted(_)), "{again:?}");
    sleep(30 * S).await;
    assert!(!stage.is_free().await, "an attempt shortened it");
    let mut renewals = stage.store.renew(std::slice::from_ref(&short)).await;
    assert_eq!(renewals.len(), 1);
    let renewal = renewals.remove(0).unwrap();
    assert!(matches!(renewal, Renewal::Renewed { .. }), "{renewal:?}");
    sleep(29 * S).await;
    assert!(!stage.is_free().await, "a renewal shortened it");
    sleep(2 * S).await;
    assert!(stage.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn fixed_lease_is_never_renewed() {
    let leases = Stage::leases();
    let guard = leases.fixed(5 * S).await;
    leases.holds_for(&guard, 5 * S).await;
    assert_eq!(leases.faults.calls(Operation::Renew), 0);
    // On a session it is, where the session is not known to last as long.
    let sessions = Stage::sessions(60 * S);
    sleep(S).await;
    let guard = sessions.fixed(60 * S).await;
    sessions.faults.reset_counts();
    sleep(30 * S).await;
    guard.check().unwrap();
    assert_eq!(sessions.faults.calls(Operation::Renew), 0);
}

#[tokio::test(start_paused = true)]
async fn needless_extension_sends_no_request() {
    let stage = Stage::leases();
    let guard = stage.fixed(60 * S).await;
    guard.extend(30 * S).await.unwrap();
    sleep(30 * S).await;
    guard.extend(29 * S).await.unwrap();
    assert_eq!(stage.faults.calls(Operation::Renew), 0);
    guard.extend(31 * S).await.unwrap();
    assert_eq!(stage.faults.calls(Operation::Renew), 1);
    stage.holds_for(&guard, 31 * S).await;
}

#[tokio::test(start_paused = true)]
async fn leaked_pushed_grant_keeps_its_whole_lease() {
    let stage = Stage::leases();
    let began = Instant::now();
    stage.pushed(30 * S).await.leak();
    let next = stage.other.lock("a").unwrap().acquire().await.unwrap();
    // It waited for two seconds; one per cent is for the clocks.
    let kept = began.elapsed() - 2 * S;
    assert!(kept >= 29 * S && kept <= 31 * S, "{kept:?}");
    next.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn leaked_hold_is_not_renewed_and_delays_no_shutdown() {
    let stage = Stage::leases();
    let lock = stage.client.lock("a").unwrap();
    let lock = lock.with_lease(Lease::renewed(6 * S)).unwrap();
    let guard = lock.acquire().await.unwrap();
    let again = guard.reenter().unwrap();
    guard.leak();
    sleep(20 * S).await;
    again.check().unwrap();
    drop(again);
    stage.faults.reset_counts();
    let began = Instant::now();
    stage.client.shutdown(60 * S).await.unwrap();
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(!stage.is_free().await, "its lease ends it");
    sleep(6 * S).await;
    assert!(stage.is_free().await);
    assert_eq!(stage.faults.calls(Operation::Renew), 0);
}

#[tokio::test(start_paused = true)]
async fn short_lease_is_renewed_no_more_often_than_every_third() {
    let stage = Stage::leases();
    let lock = stage.client.lock("a").unwrap();
    let lock = lock.with_lease(Lease::renewed(300 * MS)).unwrap();
    let guard = lock.acquire().await.unwrap();
    sleep(30 * S).await;
    guard.check().unwrap();
    let renewals = stage.faults.calls(Operation::Renew);
    // Every 100 ms; up to a fiftieth of the lease earlier, to share a request.
    assert!((290..=330).contains(&renewals), "{renewals} renewals");
}

#[tokio::test]
async fn extension_whose_reply_comes_after_the_deadline_is_a_loss() {
    let clock = Arc::new(ManualClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let faulty = Faulty::new(Arc::new(store.connect()), 1);
    let faults = faulty.faults();
    let client = LockClient::builder(faulty).clock(clock.clone());
    let client = client.build().unwrap();
    let lock = client.lock("a").unwrap();
    let lock = lock.with_lease(Lease::fixed(30 * S)).unwrap();
    let guard = lock.acquire().await.unwrap();
    faults.inject(slow(50 * MS));
    let suspended = async {
        sleep(10 * MS).await;
        clock.advance(30 * S);
    };
    let (extended, ()) = tokio::join!(guard.extend(60 * S), suspended);
    assert!(matches!(extended, Err(Error::Lost { .. })), "{extended:?}");
}
