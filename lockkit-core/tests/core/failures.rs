//! Waiting, trying and releasing at a store that fails, with paused time.
#![expect(
    clippy::disallowed_methods,
    reason = "tests fail by panicking and run inside a runtime"
)]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::clock::TokioClock;
use lockkit_core::contract::{Attempt, LockState, Release, Renewal, Ticket, Wake, Watch};
use lockkit_core::layers::{Fault, Faults, Faulty, Operation, Rule};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{
    BackendError, Capabilities, DistributedLock, Error, Lease, LockClient, LockClientBuilder,
    LockName, LossReason, Outcome,
};
use tokio::time::{Instant, sleep, timeout};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

/// A store, the faults between it and the first client, and that client before it is made.
fn faulty(sessions: bool) -> (MemoryStore, Faults, LockClientBuilder) {
    let clock = Arc::new(TokioClock::new());
    let builder = MemoryStore::builder().clock(clock.clone());
    let store = if sessions {
        builder.sessions(30 * S).build()
    } else {
        builder.build()
    };
    let faulty = Faulty::new(Arc::new(store.connect()), 1);
    let faults = faulty.faults();
    let builder = LockClient::builder(faulty).clock(clock);
    (store, faults, builder)
}

/// The same, with the lock `a` held by another client.
async fn held() -> (Faults, LockClient, impl Sized) {
    let (store, faults, builder) = faulty(false);
    let other = LockClient::builder(store.connect())
        .clock(Arc::new(TokioClock::new()))
        .build()
        .unwrap();
    let guard = other.lock("a").unwrap().acquire().await.unwrap();
    (faults, builder.build().unwrap(), guard)
}

#[tokio::test(start_paused = true)]
async fn wait_that_ends_while_the_store_fails_returns_the_failure() {
    for silent in [false, true] {
        let (faults, client, _held) = held().await;
        let began = Instant::now();
        let lock = client.lock("a").unwrap();
        let waiting = tokio::spawn(async move { lock.acquire_timeout(2500 * MS).await });
        sleep(500 * MS).await;
        if silent {
            faults.black_hole();
        } else {
            faults.outage();
        }
        // The waiter tries again after three seconds.
        let answer = waiting.await.unwrap();
        assert!(matches!(answer, Err(Error::Backend(_))), "{answer:?}");
        let waited = began.elapsed();
        assert!(
            waited >= 2500 * MS && waited <= 4600 * MS,
            "one request longer at most: {waited:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn wait_without_any_answer_returns_the_failure() {
    let (faults, client, _held) = held().await;
    faults.black_hole();
    let lock = client.lock("a").unwrap();
    let answer = timeout(4 * S, lock.acquire_timeout(S)).await.unwrap();
    assert!(matches!(answer, Err(Error::Backend(_))), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn second_waiter_gets_the_failure_at_its_own_limit() {
    let (faults, client, _held) = held().await;
    let (patient, lock) = (client.lock("a").unwrap(), client.lock("a").unwrap());
    let patient = tokio::spawn(async move { patient.acquire().await.map(drop) });
    sleep(100 * MS).await;
    let began = Instant::now();
    let waiting = tokio::spawn(async move { lock.acquire_timeout(S).await });
    sleep(100 * MS).await;
    faults.outage();
    let answer = waiting.await.unwrap();
    assert!(matches!(answer, Err(Error::Backend(_))), "{answer:?}");
    // The one before it would try again after three seconds.
    assert!(began.elapsed() < 1100 * MS, "{:?}", began.elapsed());
    // Without a limit it waits for the recovery.
    sleep(10 * S).await;
    assert!(!patient.is_finished());
    patient.abort();
}

#[tokio::test(start_paused = true)]
async fn failed_watches_prolong_no_wait() {
    let (faults, client, _held) = held().await;
    faults.inject(Rule::new(Fault::Hang).on(Operation::Watch));
    let began = Instant::now();
    let waited = client.lock("a").unwrap().acquire_timeout(S).await;
    assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
    assert!(began.elapsed() < 1100 * MS, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn wait_at_a_recovered_store_ends_with_a_timeout() {
    let (faults, client, _held) = held().await;
    faults.outage();
    let lock = client.lock("a").unwrap();
    let waiting = tokio::spawn(async move { lock.acquire_timeout(5 * S).await });
    sleep(2 * S).await;
    faults.heal();
    let answer = waiting.await.unwrap();
    assert!(matches!(answer, Err(Error::Timeout { .. })), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn wait_without_a_limit_ends_after_the_outage_limit() {
    let (faults, client, _held) = held().await;
    let lock = client.lock("a").unwrap();
    let began = Instant::now();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    for _ in 0..3 {
        // Each of these is shorter than the outage that is ridden out.
        sleep(5 * S).await;
        faults.outage();
        sleep(20 * S).await;
        faults.heal();
    }
    sleep(5 * S).await;
    assert!(!waiting.is_finished());
    faults.outage();
    let answer = waiting.await.unwrap();
    assert!(matches!(answer, Err(Error::Backend(_))), "{answer:?}");
    let waited = began.elapsed();
    assert!(waited >= 110 * S && waited <= 115 * S, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn wait_that_begins_in_an_outage_has_the_whole_outage_limit() {
    let (faults, client, _held) = held().await;
    faults.outage();
    let (first, second) = (client.lock("a").unwrap(), client.lock("a").unwrap());
    let first = tokio::spawn(async move { first.acquire().await.map(drop) });
    sleep(20 * S).await;
    let second = tokio::spawn(async move { second.acquire().await.map(drop) });
    sleep(15 * S).await;
    assert!(first.is_finished() && !second.is_finished());
    sleep(20 * S).await;
    assert!(matches!(second.await.unwrap(), Err(Error::Backend(_))));
}

#[tokio::test(start_paused = true)]
async fn try_whose_grant_had_no_reply_leaves_nothing() {
    let (store, faults, builder) = faulty(false);
    let client = builder.build().unwrap();
    let unanswered = Rule::new(Fault::DropReply).on(Operation::Attempt);
    faults.inject(unanswered.times(1));
    let unavailable = Rule::new(Fault::Fail(Outcome::Unavailable));
    faults.inject(unavailable.on(Operation::Attempt));
    let tried = client.lock("a").unwrap().try_acquire().await;
    assert!(matches!(tried, Err(Error::Backend(_))), "{tried:?}");
    client.drain().await;
    assert!(store.is_empty(), "{:?}", store.counts());
}

#[tokio::test(start_paused = true)]
async fn releases_of_an_outage_end_with_their_leases_or_with_the_outage() {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    for (sessions, at_most) in [(false, 20), (true, 100)] {
        let (store, faults, builder) = faulty(sessions);
        let client = builder.build().unwrap();
        let before = tasks();
        faults.black_hole();
        for n in 0..100 {
            // It takes two seconds, a lease thirty.
            let failed = client.lock(n.to_string()).unwrap().try_acquire().await;
            assert!(matches!(failed, Err(Error::Backend(_))), "{failed:?}");
        }
        let releases = tasks() - before;
        assert!(releases <= at_most, "{releases} with sessions: {sessions}");
        faults.heal();
        client.drain().await;
        assert!(store.is_empty(), "{:?}", store.counts());
        drop(client);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_release_is_given_up_with_its_lease() {
    let (_, faults, builder) = faulty(false);
    let client = builder.lease(Lease::renewed(3 * S)).build().unwrap();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    faults.inject(Rule::new(Fault::Fail(Outcome::Rejected)).on(Operation::Release));
    drop(guard);
    let began = Instant::now();
    client.drain().await;
    // The lease, one request and one per cent.
    let drained = began.elapsed();
    assert!(drained >= 3 * S && drained < 5100 * MS, "{drained:?}");
}

#[tokio::test(start_paused = true)]
async fn grants_that_always_come_too_late_count_as_an_outage() {
    let (_, faults, builder) = faulty(false);
    let client = builder.outage(5 * S).build().unwrap();
    let (min, max) = (200 * MS, 200 * MS);
    let late = Rule::new(Fault::SlowReply { min, max });
    faults.inject(late.on(Operation::Attempt));
    let lock = client.lock("a").unwrap();
    let lock = lock.with_lease(Lease::renewed(150 * MS)).unwrap();
    for bounded in [false, true] {
        let began = Instant::now();
        let acquire = async {
            match bounded {
                true => lock.acquire_timeout(2 * S).await,
                false => lock.acquire().await,
            }
        };
        let answer = timeout(60 * S, acquire).await.expect("it ends");
        let Err(Error::Backend(error)) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(error.outcome(), Outcome::Indeterminate);
        assert!(began.elapsed() < 8 * S, "{:?}", began.elapsed());
    }
    let tried = lock.try_acquire().await;
    assert!(matches!(tried, Err(Error::Backend(_))), "{tried:?}");
}

#[tokio::test(start_paused = true)]
async fn refused_releases_delay_no_other_and_are_seldom_repeated() {
    let (store, faults, builder) = faulty(true);
    let client = builder.build().unwrap();
    let mut guards = Vec::new();
    for n in 0..300 {
        let name = LockName::new(format!("bad/{n}")).unwrap();
        let refused = Rule::new(Fault::Fail(Outcome::Rejected)).on(Operation::Release);
        faults.inject(refused.for_name(name.clone()));
        guards.push(client.lock(name.as_str()).unwrap().acquire().await.unwrap());
    }
    drop(guards);
    sleep(S).await;
    drop(client.lock("good").unwrap().acquire().await.unwrap());
    sleep(S).await;
    assert_eq!(store.counts().holds, 300, "the other lock is released");
    sleep(60 * S).await;
    faults.reset_counts();
    sleep(300 * S).await;
    let calls = faults.calls(Operation::Release);
    assert!(
        (300..10_000).contains(&calls),
        "{calls} releases in five minutes"
    );
    faults.heal();
    timeout(60 * S, client.drain()).await.expect("asked again");
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn hanging_releases_delay_no_waiter() {
    let (_, faults, builder) = faulty(true);
    let client = builder.build().unwrap();
    let mut guards = Vec::new();
    for n in 0..300 {
        guards.push(
            client
                .lock(format!("held/{n}"))
                .unwrap()
                .acquire()
                .await
                .unwrap(),
        );
    }
    faults.inject(Rule::new(Fault::Hang).on(Operation::Release));
    drop(guards);
    sleep(100 * MS).await;
    let (min, max) = (S, S);
    let slow = Rule::new(Fault::Delay { min, max });
    faults.inject(slow.on(Operation::Attempt).times(1));
    let (first, second) = (client.lock("a").unwrap(), client.lock("a").unwrap());
    let first = tokio::spawn(async move { first.acquire().await });
    sleep(100 * MS).await;
    let second = tokio::spawn(async move { second.acquire().await });
    sleep(100 * MS).await;
    first.abort();
    let second = timeout(3 * S, second).await.expect("served");
    drop(second.unwrap().unwrap());
}

/// Reports to every ticket that its place is lost.
#[derive(Debug)]
struct Losing {
    inner: MemoryStore,
    attempts: AtomicUsize,
}

struct Lost;

#[async_trait]
impl Watch for Lost {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        Ok(Wake::Lost(LossReason::SessionEnded))
    }
}

#[async_trait]
impl DistributedLock for Losing {
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.inner.attempt(ticket).await
    }
    async fn watch(&self, _: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        Ok(Box::new(Lost))
    }
    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        self.inner.renew(tickets).await
    }
    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.inner.release(ticket).await
    }
    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.inner.inspect(name).await
    }
    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.inner.break_lock(name).await
    }
    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        self.inner.list(prefix).await
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[tokio::test(start_paused = true)]
async fn lost_place_is_taken_again_after_a_pause() {
    let clock = Arc::new(TokioClock::new());
    let inner = MemoryStore::builder().clock(clock.clone()).build();
    let other = LockClient::builder(inner.connect()).build().unwrap();
    let _held = other.lock("a").unwrap().acquire().await.unwrap();
    let attempts = AtomicUsize::new(0);
    let store = Losing {
        inner: inner.connect(),
        attempts,
    };
    let client = LockClient::builder(store).clock(clock).build().unwrap();
    let lock = client.lock("a").unwrap();
    let waited = timeout(20 * S, lock.acquire_timeout(10 * S)).await.unwrap();
    assert!(matches!(waited, Err(Error::Timeout { .. })), "{waited:?}");
    let store = client.store::<Losing>().unwrap();
    let attempts = store.attempts.load(Ordering::Relaxed);
    assert!(
        (8..40).contains(&attempts),
        "{attempts} attempts in ten seconds"
    );
    client.drain().await;
    assert_eq!(inner.counts().waiters, 0);
}

#[tokio::test(start_paused = true)]
async fn waiter_asks_a_failing_store_ever_more_seldom() {
    let (faults, client, _held) = held().await;
    faults.outage();
    let lock = client.lock("a").unwrap();
    let waited = lock.acquire_timeout(20 * S).await;
    assert!(matches!(waited, Err(Error::Backend(_))), "{waited:?}");
    // From 20 ms the pauses double to a second, and are spread over their upper half.
    let attempts = faults.calls(Operation::Attempt);
    assert!((20..=50).contains(&attempts), "{attempts} attempts");
}

#[tokio::test(start_paused = true)]
async fn watch_that_opens_slowly_still_wakes() {
    let (faults, client, held) = held().await;
    let (min, max) = (500 * MS, 500 * MS);
    faults.inject(Rule::new(Fault::Delay { min, max }).on(Operation::Watch));
    let lock = client.lock("a").unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    sleep(S).await;
    let began = Instant::now();
    drop(held);
    drop(waiting.await.unwrap().unwrap());
    assert!(began.elapsed() < 10 * MS, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn waiter_without_a_watch_polls() {
    let (faults, client, held) = held().await;
    faults.inject(Rule::new(Fault::Fail(Outcome::Unavailable)).on(Operation::Watch));
    let lock = client.lock("a").unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await });
    sleep(20 * S).await;
    let attempts = faults.calls(Operation::Attempt);
    assert!((15..=30).contains(&attempts), "{attempts} attempts");
    let began = Instant::now();
    drop(held);
    drop(waiting.await.unwrap().unwrap());
    // Waiters with a watch ask again every three seconds.
    assert!(began.elapsed() <= S, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn watch_for_a_loss_is_opened_again_ever_more_seldom() {
    let (_, faults, builder) = faulty(true);
    let client = builder.build().unwrap();
    faults.inject(Rule::new(Fault::Fail(Outcome::Unavailable)).on(Operation::Watch));
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    sleep(20 * S).await;
    guard.check().unwrap();
    let watches = faults.calls(Operation::Watch);
    assert!((20..=50).contains(&watches), "{watches} watches");
}
