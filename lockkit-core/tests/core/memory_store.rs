//! The rules of the contract as the memory store keeps them, on a clock that the test moves.
#![expect(clippy::panic, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lockkit_core::clock::{Clock, Moment, TokioClock};
use lockkit_core::contract::{
    Attempt, DistributedLock, Grant, LockState, Release, Renewal, Ticket, Wake, Watch,
};
use lockkit_core::memory::{Counts, MemoryStore, MemoryStoreBuilder};
use lockkit_core::{
    BackendError, ClientId, HolderId, LockName, LossReason, Outcome, Queueing, Waiting,
};

const TTL: Duration = Duration::from_secs(30);
/// Three heartbeats of three seconds.
const WINDOW: Duration = Duration::from_secs(9);

/// A clock that the test moves.
#[derive(Debug)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The memory store never waits: its first poll returns the answer.
fn answer<T>(future: impl Future<Output = T>) -> T {
    poll(future).unwrap()
}

fn poll<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// A store and its clock. The session of ticket `n` is `n` too.
struct Bench {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    client: ClientId,
    sessions: BTreeMap<u64, MemoryStore>,
    watches: BTreeMap<u64, Box<dyn Watch>>,
}

impl Bench {
    fn new(builder: MemoryStoreBuilder) -> Self {
        let clock = Arc::new(ManualClock(AtomicU64::new(1_000_000_000)));
        Self {
            store: builder.clock(clock.clone()).build(),
            clock,
            client: ClientId::random(),
            sessions: BTreeMap::new(),
            watches: BTreeMap::new(),
        }
    }

    fn of(queueing: Queueing, waiting: Waiting) -> Self {
        Self::new(MemoryStore::builder().queueing(queueing).waiting(waiting))
    }

    fn fifo() -> Self {
        Self::of(Queueing::Fifo, Waiting::Push)
    }

    fn sessions(ttl: Duration) -> Self {
        Self::new(MemoryStore::builder().sessions(ttl))
    }

    fn session(&mut self, n: u64) -> MemoryStore {
        let connect = || self.store.connect();
        self.sessions.entry(n).or_insert_with(connect).clone()
    }

    fn ticket(&self, n: u64) -> Ticket {
        Ticket::new(name(), HolderId::new(self.client, n), TTL)
    }

    fn try_attempt(&mut self, n: u64) -> Result<Attempt, BackendError> {
        let ticket = self.ticket(n);
        answer(self.session(n).attempt(&ticket))
    }

    fn attempt(&mut self, n: u64) -> Attempt {
        self.try_attempt(n).unwrap()
    }

    fn granted(&mut self, n: u64) -> Grant {
        match self.attempt(n) {
            Attempt::Granted(grant) => grant,
            held => panic!("{n} is not granted: {held:?}"),
        }
    }

    fn waits(&mut self, n: u64) {
        if let Attempt::Granted(grant) = self.attempt(n) {
            panic!("{n} is granted: {grant:?}");
        }
    }

    /// One after the other gets the lock from the one before it, and releases it.
    fn served(&mut self, from: u64, order: &[u64]) {
        let mut holder = from;
        for &next in order {
            self.release(holder);
            assert_eq!(self.holder(), Some(next));
            holder = next;
        }
    }

    fn release(&mut self, n: u64) -> Release {
        let ticket = self.ticket(n);
        answer(self.session(n).release(&ticket)).unwrap()
    }

    fn renew(&mut self, n: u64) -> Renewal {
        let ticket = self.ticket(n);
        answer(self.session(n).renew(&[ticket])).remove(0).unwrap()
    }

    fn break_lock(&self) -> Option<LockState> {
        answer(self.store.break_lock(&name())).unwrap()
    }

    /// The next wake-up of ticket `n`.
    fn next(&mut self, n: u64) -> Option<Wake> {
        if !self.watches.contains_key(&n) {
            let ticket = self.ticket(n);
            let watch = answer(self.session(n).watch(&ticket)).unwrap();
            self.watches.insert(n, watch);
        }
        let watch = self.watches.get_mut(&n)?;
        poll(watch.changed()).map(Result::unwrap)
    }

    fn inspect(&self) -> Option<LockState> {
        answer(self.store.inspect(&name())).unwrap()
    }

    fn list(&self, prefix: &str) -> Vec<LockState> {
        answer(self.store.list(prefix)).unwrap()
    }

    fn holder(&self) -> Option<u64> {
        let state = self.inspect()?;
        let holder: HolderId = state.holder_ids().next()?.parse().unwrap();
        Some(holder.number())
    }

    fn sleep(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap();
        self.clock.0.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// Holds and waiters.
fn counts(store: &MemoryStore) -> (usize, usize) {
    let Counts { holds, waiters, .. } = store.counts();
    (holds, waiters)
}

fn name() -> LockName {
    LockName::new("orders/42").unwrap()
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

#[test]
fn a_repeated_attempt_renews_with_the_same_token() {
    let mut bench = Bench::fifo();
    let first = bench.granted(1);
    assert_eq!(first, Grant::new(first.token, TTL));
    bench.sleep(secs(20));
    assert_eq!(bench.granted(1), first);
    bench.sleep(secs(29));
    assert_eq!(bench.holder(), Some(1));
    bench.sleep(secs(1));
    assert_eq!(bench.inspect(), None);
}

#[test]
fn the_token_grows_over_release_expiry_break_and_wipe() {
    let mut bench = Bench::fifo();
    let mut tokens = vec![bench.granted(1).token];
    bench.release(1);
    tokens.push(bench.granted(2).token);
    bench.sleep(TTL);
    tokens.push(bench.granted(2).token);
    bench.break_lock();
    tokens.push(bench.granted(3).token);
    bench.store.wipe();
    tokens.push(bench.granted(3).token);
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn only_the_holder_releases() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    assert_eq!(bench.release(2), Release::NotHeld);
    assert_eq!(bench.holder(), Some(1));
    assert_eq!(bench.release(1), Release::Released);
    assert_eq!(bench.release(1), Release::NotHeld);
    assert_eq!(bench.inspect(), None);
}

#[test]
fn a_try_leaves_nothing_behind() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    let ticket = bench.ticket(2).with_enqueue(false);
    let tried = answer(bench.session(2).attempt(&ticket)).unwrap();
    assert_eq!(tried, Attempt::held_for(Some(TTL)));
    assert_eq!(counts(&bench.store), (1, 0));
}

#[test]
fn a_release_makes_the_first_living_waiter_the_holder() {
    let mut bench = Bench::fifo();
    let first = bench.granted(1);
    bench.waits(2);
    bench.sleep(secs(5));
    bench.waits(3);
    bench.waits(4);
    bench.sleep(secs(4));
    // The second has been silent for its window.
    bench.release(1);
    assert_eq!(bench.holder(), Some(3));
    let Some(Wake::Granted(grant)) = bench.next(3) else {
        panic!("nobody told the third");
    };
    assert!(grant.token > first.token);
    assert_eq!(grant.ttl, WINDOW);
    // The second comes back, to a new place at the end.
    bench.waits(2);
    bench.served(3, &[4, 2]);
}

#[test]
fn grant_that_was_not_read_ends_before_the_next_attempt() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.waits(2);
    assert_eq!(bench.next(2), None);
    bench.release(1);
    bench.sleep(WINDOW);
    bench.granted(3);
    bench.waits(2);
    assert_eq!(bench.next(2), None, "it was about a hold that has ended");
    bench.release(3);
    assert!(matches!(bench.next(2), Some(Wake::Granted(_))));
}

#[test]
fn a_place_lives_by_its_heartbeat() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.waits(2);
    bench.waits(3);
    for _ in 0..4 {
        bench.sleep(secs(6));
        bench.renew(1);
        bench.waits(3);
        bench.waits(2);
    }
    bench.served(1, &[2, 3]);
}

#[test]
fn a_silent_waiter_keeps_its_place_until_its_turn_comes() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    for n in [2, 3, 4] {
        bench.waits(n);
    }
    bench.sleep(secs(5));
    bench.waits(2);
    bench.sleep(WINDOW - secs(5));
    bench.waits(4);
    bench.waits(3);
    bench.served(1, &[2, 3, 4]);
}

#[test]
fn a_pushed_grant_lasts_one_window_and_an_answer_makes_it_whole() {
    for answer in [Bench::renewed, Bench::granted_again] {
        let mut bench = Bench::fifo();
        bench.granted(1);
        bench.waits(2);
        bench.waits(3);
        bench.release(1);
        bench.sleep(WINDOW - secs(1));
        answer(&mut bench, 2);
        bench.sleep(TTL - secs(1));
        assert_eq!(bench.holder(), Some(2));
    }
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.waits(2);
    bench.release(1);
    bench.sleep(secs(4));
    bench.waits(3);
    bench.sleep(WINDOW - secs(4));
    assert_eq!(bench.renew(2), Renewal::NotHeld);
    assert_eq!(bench.holder(), Some(3));
}

impl Bench {
    fn renewed(&mut self, n: u64) {
        assert_eq!(self.renew(n), Renewal::renewed(TTL));
    }

    fn granted_again(&mut self, n: u64) {
        assert_eq!(self.granted(n).ttl, TTL);
    }
}

#[test]
fn a_withdrawn_grant_passes_to_the_next() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.waits(2);
    bench.waits(3);
    bench.release(1);
    assert_eq!(bench.release(2), Release::Released);
    assert!(matches!(bench.next(3), Some(Wake::Granted(_))));
    assert_eq!(bench.holder(), Some(3));
}

#[test]
fn a_newcomer_never_overtakes_and_a_heartbeat_finds_the_expired_lock() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.sleep(TTL - secs(2));
    bench.waits(2);
    bench.sleep(secs(2));
    bench.waits(3);
    assert_eq!(bench.holder(), Some(2));

    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.sleep(TTL - secs(2));
    bench.waits(2);
    bench.sleep(secs(2));
    assert_eq!(bench.granted(2).ttl, TTL);
}

#[test]
fn a_renewal_never_creates_a_hold() {
    let mut bench = Bench::fifo();
    assert_eq!(bench.renew(1), Renewal::NotHeld);
    bench.granted(1);
    bench.sleep(TTL);
    assert_eq!(bench.renew(1), Renewal::NotHeld);
    assert_eq!(bench.inspect(), None);
}

#[test]
fn a_late_attempt_of_a_released_ticket_is_refused() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.waits(2);
    bench.release(2);
    bench.release(1);
    for n in [1, 2] {
        let refused = bench.try_attempt(n).unwrap_err();
        assert_eq!(refused.outcome(), Outcome::Rejected);
    }
    assert_eq!(counts(&bench.store), (0, 0));
}

#[test]
fn wake_ups_are_kept_until_the_watch_opens() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.waits(2);
    bench.release(1);
    assert!(matches!(bench.next(2), Some(Wake::Granted(_))));
    // A ticket that the store does not know may have missed anything.
    assert_eq!(bench.next(3), Some(Wake::Retry));
}

#[test]
fn with_every_push_lost_a_heartbeat_finds_the_grant() {
    let mut bench = Bench::fifo();
    bench.store.lose_pushes(true);
    bench.granted(1);
    bench.waits(2);
    bench.release(1);
    assert_eq!(bench.next(2), None);
    bench.granted(2);
}

#[test]
fn hints_do_not_pile_up() {
    let mut bench = Bench::of(Queueing::Barging, Waiting::Push);
    bench.granted(1);
    bench.waits(2);
    for n in 1..10 {
        bench.release(2 * n - 1);
        bench.granted(2 * n + 1);
    }
    assert_eq!(bench.next(2), Some(Wake::Retry));
    assert_eq!(bench.next(2), None);
}

#[test]
fn racing_waiters_are_all_woken_and_the_first_takes_it() {
    let mut bench = Bench::of(Queueing::Barging, Waiting::Push);
    bench.granted(1);
    bench.waits(2);
    bench.waits(3);
    bench.release(1);
    assert_eq!(bench.next(2), Some(Wake::Retry));
    assert_eq!(bench.next(3), Some(Wake::Retry));
    bench.granted(4);
    bench.release(4);
    bench.granted(3);
    assert_eq!(bench.inspect().unwrap().waiters, Some(1));
    bench.waits(5);
    bench.sleep(secs(5));
    bench.waits(2);
    bench.sleep(WINDOW - secs(5));
    assert_eq!(bench.inspect().unwrap().waiters, Some(1));
    bench.release(2);
    bench.release(3);
    assert_eq!(bench.inspect(), None);
}

#[test]
fn a_polled_queue_keeps_its_order_without_wake_ups() {
    let mut bench = Bench::of(Queueing::Fifo, Waiting::Poll);
    bench.granted(1);
    bench.waits(2);
    bench.waits(3);
    bench.release(1);
    bench.waits(3);
    bench.granted(2);
    let mut bench = Bench::of(Queueing::Barging, Waiting::Poll);
    bench.granted(1);
    bench.waits(2);
    assert_eq!(bench.inspect().unwrap().waiters, Some(1));
    assert_eq!(counts(&bench.store), (1, 1));
}

#[test]
fn a_break_ends_the_hold_and_passes_on() {
    let mut bench = Bench::sessions(secs(10));
    assert_eq!(bench.break_lock(), None);
    let first = bench.granted(1);
    bench.next(1);
    bench.waits(2);
    let was = bench.break_lock().unwrap();
    assert_eq!(was.token, Some(first.token));
    assert_eq!(was.waiters, Some(1));
    assert_eq!(bench.next(1), Some(Wake::Lost(LossReason::Superseded)));
    assert_eq!(bench.holder(), Some(2));
}

#[test]
fn a_session_carries_its_holds_and_places() {
    let mut bench = Bench::sessions(secs(10));
    let start = bench.clock.now();
    let grant = bench.granted(1);
    assert_eq!((grant.since, grant.ttl), (Some(start), secs(10)));
    bench.next(1);
    bench.waits(2);
    bench.sleep(secs(4));
    bench.waits(3);
    bench.sleep(secs(5));
    let now = bench.clock.now();
    let renewed = Renewal::Renewed {
        since: Some(now),
        ttl: secs(10),
    };
    assert_eq!(bench.renew(1), renewed);
    bench.next(2);
    // The second session has been silent for ten seconds, the third for six.
    bench.sleep(secs(1));
    assert_eq!(bench.inspect().unwrap().waiters, Some(1));
    assert_eq!(bench.next(2), Some(Wake::Lost(LossReason::SessionEnded)));
    bench.release(1);
    let Some(Wake::Granted(grant)) = bench.next(3) else {
        panic!("nobody told the third");
    };
    assert_eq!(grant.since, Some(start + secs(4)));
}

#[test]
fn an_expired_session_frees_what_it_held() {
    let mut bench = Bench::sessions(secs(10));
    bench.granted(1);
    bench.waits(2);
    bench.waits(3);
    bench.session(2).expire_session();
    assert_eq!(bench.next(2), Some(Wake::Lost(LossReason::SessionEnded)));
    bench.session(1).expire_session();
    assert_eq!(bench.holder(), Some(3));
    assert_eq!(bench.next(1), Some(Wake::Lost(LossReason::SessionEnded)));
    // The handle lives on, in a new session; its old hold does not.
    assert_eq!(bench.renew(1), Renewal::NotHeld);
}

#[test]
fn a_wipe_is_told_where_losses_are_told() {
    let mut bench = Bench::sessions(secs(10));
    bench.granted(1);
    bench.next(1);
    bench.store.wipe();
    assert_eq!(bench.next(1), Some(Wake::Lost(LossReason::Superseded)));
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.waits(2);
    bench.store.wipe();
    assert_eq!(counts(&bench.store), (0, 0));
    bench.granted(2);
}

#[test]
fn a_list_is_sorted_and_shows_what_lives() {
    let bench = Bench::fifo();
    for (n, name) in ["b", "a/2", "a/1"].into_iter().enumerate() {
        let mut ticket = bench.ticket(n as u64);
        ticket.name = LockName::new(name).unwrap();
        answer(bench.store.attempt(&ticket)).unwrap();
    }
    let found = bench.list("a/");
    let names: Vec<_> = found.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(names, ["a/1", "a/2"]);
    assert_eq!(found[0].remaining, Some(TTL));
    bench.sleep(TTL);
    assert_eq!(bench.list(""), []);
}

fn paused() -> MemoryStore {
    MemoryStore::builder()
        .clock(Arc::new(TokioClock::new()))
        .build()
}

fn ticket(n: u64) -> Ticket {
    Ticket::new(name(), HolderId::new(ClientId::random(), n), TTL)
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_for_a_wake_up_loses_nothing() {
    let store = paused();
    let (first, second) = (ticket(1), ticket(2));
    store.attempt(&first).await.unwrap();
    store.attempt(&second).await.unwrap();
    let mut watch = store.watch(&second).await.unwrap();
    let timeout = tokio::time::timeout(secs(1), watch.changed()).await;
    assert!(timeout.is_err());
    store.release(&first).await.unwrap();
    // Polled once after the bell came, and dropped: the wake-up stays.
    drop(watch.changed());
    assert!(matches!(watch.changed().await, Ok(Wake::Granted(_))));
    store.release(&second).await.unwrap();
    drop(watch);
    assert!(store.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watch_leaves_nothing_behind() {
    let store = paused();
    let (first, second) = (ticket(1), ticket(2));
    store.attempt(&first).await.unwrap();
    store.attempt(&second).await.unwrap();
    let watch = store.watch(&second).await.unwrap();
    tokio::time::advance(TTL).await;
    let counts = store.counts();
    let kept = (counts.holds, counts.waiters, counts.watches);
    assert_eq!(kept, (0, 0, 1));
    drop(watch);
    assert_eq!(store.counts(), Counts::default());
}

#[tokio::test(start_paused = true)]
async fn a_clone_shares_the_session_and_a_connection_has_its_own() {
    let store = paused();
    let other = store.connect();
    let (first, second) = (ticket(1), ticket(2));
    store.clone().attempt(&first).await.unwrap();
    other.attempt(&second).await.unwrap();
    store.expire_session();
    let state = other.inspect(&name()).await.unwrap().unwrap();
    assert!(
        state.holder_ids().eq([second.holder.to_string()]),
        "{state:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn renewals_are_answered_one_by_one_in_order() {
    let store = paused();
    let mut tickets: Vec<_> = (0..1201).map(ticket).collect();
    for (n, ticket) in tickets.iter_mut().enumerate() {
        ticket.name = LockName::new(n.to_string()).unwrap();
    }
    for ticket in tickets.iter().step_by(2) {
        store.attempt(ticket).await.unwrap();
    }
    let answers = store.renew(&tickets).await;
    assert_eq!(answers.len(), tickets.len());
    for (n, answer) in answers.into_iter().enumerate() {
        let held = answer.unwrap() != Renewal::NotHeld;
        assert_eq!(held, n % 2 == 0, "{n}");
    }
}

/// Other tickets keep the session, so that nothing else ends what was forgotten.
#[test]
fn forgotten_ticket_of_a_session_ends_at_once() {
    let mut bench = Bench::sessions(secs(10));
    bench.granted(1);
    let store = bench.session(1);
    for n in [2, 3] {
        let attempt = answer(store.attempt(&bench.ticket(n))).unwrap();
        assert!(matches!(attempt, Attempt::Held { .. }), "{attempt:?}");
    }
    for n in [3, 1] {
        store.forget(bench.ticket(n).holder);
    }
    assert_eq!(bench.holder(), Some(2));
    let counts = store.counts();
    assert_eq!((counts.holds, counts.waiters), (1, 0));
    assert!(bench.try_attempt(1).is_err());
}

#[test]
fn forgotten_ticket_ends_with_its_lease() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.store.forget(bench.ticket(1).holder);
    assert_eq!(bench.holder(), Some(1));
    bench.sleep(TTL);
    assert_eq!(bench.holder(), None);
}
