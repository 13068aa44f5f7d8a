//! Renewal in batches: what one bad lock does to the others, and what a silent store does to all.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::clock::TokioClock;
use lockkit_core::contract::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::layers::{Fault, Faults, Faulty, Operation, Rule};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{
    BackendError, Capabilities, DistributedLock, Error, Guard, Lease, LockClient, LockName,
    LossReason, Outcome,
};
use tokio::time::{Instant, sleep};

const TTL: Duration = Duration::from_secs(6);

/// Never answers a batch of renewals that the lock `bad` is in, as a database does in which
/// another program has locked that row.
#[derive(Debug)]
struct Blocked {
    inner: MemoryStore,
    batches: AtomicUsize,
}

#[async_trait]
impl DistributedLock for Blocked {
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.inner.attempt(ticket).await
    }
    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        self.inner.watch(ticket).await
    }
    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        self.batches.fetch_add(1, Ordering::Relaxed);
        if tickets.iter().any(|ticket| ticket.name.as_str() == "bad") {
            std::future::pending::<()>().await;
        }
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

/// A store, a client of it, and the handle of the faults between the two.
fn faulty() -> (MemoryStore, Faults, LockClient) {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let faulty = Faulty::new(Arc::new(store.connect()), 1);
    let faults = faulty.faults();
    let client = LockClient::builder(faulty).clock(clock).build().unwrap();
    (store, faults, client)
}

async fn take(client: &LockClient, name: impl AsRef<str>) -> Guard {
    let lock = client
        .lock(name)
        .unwrap()
        .with_lease(Lease::renewed(TTL))
        .unwrap();
    lock.acquire().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_bad_lock_delays_no_other() {
    let clock = Arc::new(TokioClock::new());
    let inner = MemoryStore::builder().clock(clock.clone()).build();
    let store = Blocked {
        inner,
        batches: AtomicUsize::new(0),
    };
    let client = LockClient::builder(store).clock(clock).build().unwrap();
    let began = Instant::now();
    let bad = take(&client, "bad").await;
    let mut good = Vec::new();
    for n in 0..499 {
        good.push(take(&client, format!("good/{n}")).await);
    }
    assert_eq!(bad.lost().await, LossReason::Expired);
    assert!(began.elapsed() <= TTL, "lost no later than the lease ends");
    sleep(20 * TTL).await;
    let lost = good.iter().filter(|guard| guard.check().is_err()).count();
    assert_eq!(lost, 0);
    let batches = client
        .store::<Blocked>()
        .unwrap()
        .batches
        .load(Ordering::Relaxed);
    // Renewals that are due within 50 ms share a request: 20 a second, not 250.
    let bound = usize::try_from(began.elapsed().as_secs()).unwrap() * 21 + 600;
    assert!(
        batches < bound,
        "{batches} requests: the batches did not come together again"
    );
}

#[tokio::test(start_paused = true)]
async fn silence_of_the_store_ends_its_holds_in_time() {
    let (store, faults, client) = faulty();
    let guard = take(&client, "a").await;
    sleep(10 * TTL).await;
    guard.check().unwrap();
    faults.black_hole();
    let silent = Instant::now();
    assert_eq!(guard.lost().await, LossReason::Expired);
    // The last renewal was acknowledged at most a third of the lease before.
    assert!(
        silent.elapsed() >= TTL / 2 && silent.elapsed() <= TTL,
        "{:?}",
        silent.elapsed()
    );
    assert!(
        store.counts().holds == 1,
        "the store still has it: the client was first"
    );
}

/// The error of a loss has the failure of the renewals in the same line.
#[tokio::test(start_paused = true)]
async fn loss_has_the_failure_of_its_renewals() {
    let (_, faults, client) = faulty();
    let silent = take(&client, "a").await;
    faults.black_hole();
    silent.lost().await;
    let text = silent.check().unwrap_err().to_string();
    assert!(text.contains("the last renewal failed: renew of"), "{text}");
    faults.heal();
    let guard = take(&client, "b").await;
    faults.inject(Rule::new(Fault::Fail(Outcome::Unavailable)).on(Operation::Renew));
    guard.lost().await;
    let lost = guard.release().await.unwrap_err();
    let Error::Lost { source, .. } = lost else {
        panic!("{lost}");
    };
    assert_eq!(source.unwrap().outcome(), Outcome::Unavailable);
    faults.heal();
    // A failure that a later renewal made good, and a loss that has another cause, name none.
    let guard = take(&client, "c").await;
    faults.inject(Rule::new(Fault::Fail(Outcome::Unavailable)).on(Operation::Renew));
    faults.struck(1).await;
    client.lock("c").unwrap().break_lock().await.unwrap();
    faults.heal();
    assert_eq!(guard.lost().await, LossReason::Superseded);
    let text = guard.check().unwrap_err().to_string();
    assert!(!text.contains("renewal failed"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn failed_renewals_are_repeated_until_the_deadline() {
    let (_, faults, client) = faulty();
    let guard = take(&client, "a").await;
    for outcome in [
        Outcome::Unavailable,
        Outcome::Indeterminate,
        Outcome::Rejected,
    ] {
        faults.inject(Rule::new(Fault::Fail(outcome)).on(Operation::Renew));
        // Longer than a renewal's turn, shorter than the lease.
        sleep(TTL * 6 / 10).await;
        let failure = guard.renewal_failure().map(|error| error.outcome());
        assert_eq!(failure, Some(outcome));
        faults.heal();
        sleep(2 * TTL).await;
        guard.check().unwrap();
        assert!(guard.renewal_failure().is_none(), "one has succeeded");
    }
    assert!(faults.injected() > 3);
}

#[tokio::test(start_paused = true)]
async fn silent_store_gets_few_renewals() {
    let (_, faults, client) = faulty();
    let mut guards = Vec::new();
    for n in 0..5_000 {
        guards.push(take(&client, format!("held/{n}")).await);
    }
    sleep(TTL).await;
    faults.black_hole();
    faults.reset_counts();
    sleep(TTL).await;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    assert_eq!(lost, guards.len(), "nothing was renewed");
    let asked = faults.calls(Operation::Renew);
    // The first batches, and in the rest of the lease four rounds of 64 parts at most.
    assert!(asked < 500, "{asked} renewals were asked of a silent store");
}

#[tokio::test(start_paused = true)]
async fn many_holds_outlast_a_silence_shorter_than_their_lease() {
    let (_, faults, client) = faulty();
    let mut guards = Vec::new();
    for n in 0..5_000 {
        guards.push(take(&client, format!("held/{n}")).await);
    }
    sleep(TTL).await;
    faults.black_hole();
    // The first batches and the first parts of them have run into their limits by then.
    sleep(TTL * 4 / 10).await;
    faults.heal();
    sleep(10 * TTL).await;
    let lost = guards.iter().filter(|guard| guard.check().is_err()).count();
    assert_eq!(lost, 0);
    faults.reset_counts();
    sleep(10 * TTL).await;
    let asked = faults.calls(Operation::Renew);
    // Renewals that are due within 50 ms share a request: 20 a second, not 2 500.
    assert!(
        asked < 1_300,
        "{asked} requests: the batches did not come together again"
    );
}

#[tokio::test(start_paused = true)]
async fn failed_renewal_is_repeated_often_within_a_short_lease() {
    let (_, faults, client) = faulty();
    let lock = client.lock("a").unwrap();
    let lock = lock.with_lease(Lease::renewed(TTL / 10)).unwrap();
    let guard = lock.acquire().await.unwrap();
    faults.inject(Rule::new(Fault::Fail(Outcome::Unavailable)).on(Operation::Renew));
    guard.lost().await;
    let asked = faults.calls(Operation::Renew);
    // From a third of the lease on, every twentieth of it.
    assert!((12..=15).contains(&asked), "{asked} renewals");
}
