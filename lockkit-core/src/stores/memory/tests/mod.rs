//! The rules of the contract, on the state machine alone: no runtime, no real time.

mod handles;

use std::time::Duration;

use super::entry::WasReleased;
use super::globals::Session;
use super::state::State;
use crate::contract::capability::{Capabilities, EndsBy, Queueing, TtlOf, Waiting};
use crate::contract::error::LossReason;
use crate::contract::holder::{ClientId, HolderId};
use crate::contract::name::LockName;
use crate::contract::{Attempt, Grant, LockState, Release, Renewal, Ticket, Wake};
use crate::store::waiters::{Entry, TicketWatch};
use crate::time::clock::Moment;

const TTL: Duration = Duration::from_secs(30);
/// Three heartbeats of three seconds.
const WINDOW: Duration = Duration::from_secs(9);

/// The state with a clock beside it.
struct Bench {
    state: State,
    now: Moment,
    client: ClientId,
    watches: Vec<TicketWatch>,
}

impl Bench {
    fn new(rules: Capabilities) -> Self {
        Self {
            state: State::new(rules),
            now: Moment::from_nanos(1_000_000_000),
            client: ClientId::random(),
            watches: Vec::new(),
        }
    }

    fn fifo() -> Self {
        Self::new(rules(Queueing::Fifo, Waiting::Push))
    }

    fn sessions(ttl: Duration) -> Self {
        Self::new(
            rules(Queueing::Fifo, Waiting::Push)
                .with_ttl_range(ttl, ttl)
                .with_ttl_of(TtlOf::PerSession)
                .with_ends_by(EndsBy::Session)
                .with_tells_loss(true),
        )
    }

    fn ticket(&self, n: u64) -> Ticket {
        Ticket::new(name(), HolderId::new(self.client, n), TTL)
    }

    /// The session of ticket `n` is `n` too.
    fn attempt(&mut self, n: u64) -> Attempt {
        let ticket = self.ticket(n);
        self.state.attempt(&ticket, n, self.now).unwrap()
    }

    fn granted(&mut self, n: u64) -> Grant {
        match self.attempt(n) {
            Attempt::Granted(grant) => grant,
            held @ Attempt::Held { .. } => panic!("{n} is not granted: {held:?}"),
        }
    }

    fn waits(&mut self, n: u64) {
        if let Attempt::Granted(grant) = self.attempt(n) {
            panic!("{n} is granted: {grant:?}");
        }
    }

    /// One after the other gets the lock from the one before it, and gives it back.
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
        self.state.release(&ticket, self.now)
    }

    fn renew(&mut self, n: u64) -> Renewal {
        let ticket = self.ticket(n);
        self.state.renew(&ticket, n, self.now)
    }

    fn watch(&mut self, n: u64, session: Session) -> Option<Wake> {
        let ticket = self.ticket(n);
        let watch = self.state.watch(&ticket, session, self.now);
        self.watches.push(watch);
        self.next(n)
    }

    /// The next wake-up of ticket `n`.
    fn next(&self, n: u64) -> Option<Wake> {
        let holder = HolderId::new(self.client, n);
        self.state.globals.waiters.with(holder, Entry::next)?
    }

    fn look(&mut self) -> Option<LockState> {
        self.state.inspect(&name(), self.now)
    }

    fn holder(&mut self) -> Option<u64> {
        let state = self.look()?;
        let holder: HolderId = state.holders.first()?.parse().unwrap();
        Some(holder.number())
    }

    fn sleep(&mut self, time: Duration) {
        self.now = self.now + time;
    }
}

fn rules(queueing: Queueing, waiting: Waiting) -> Capabilities {
    Capabilities::new()
        .with_queueing(queueing)
        .with_waiting(waiting)
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
    assert_eq!(bench.look(), None);
}

#[test]
fn the_token_grows_over_release_expiry_break_and_wipe() {
    let mut bench = Bench::fifo();
    let mut tokens = vec![bench.granted(1).token];
    bench.release(1);
    tokens.push(bench.granted(2).token);
    bench.sleep(TTL);
    tokens.push(bench.granted(2).token);
    bench.state.break_lock(&name(), bench.now);
    tokens.push(bench.granted(3).token);
    bench.state.wipe();
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
    assert_eq!(bench.look(), None);
}

#[test]
fn a_try_leaves_nothing_behind() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    let ticket = bench.ticket(2).with_enqueue(false);
    let answer = bench.state.attempt(&ticket, 2, bench.now);
    assert_eq!(answer, Ok(Attempt::held_for(Some(TTL))));
    assert_eq!(bench.state.counts(bench.now), (1, 0, 0));
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
    assert_eq!(bench.next(2), None);
    // It comes back, to a new place at the end.
    bench.waits(2);
    bench.served(3, &[4, 2]);
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
    assert_eq!(bench.look(), None);
}

#[test]
fn a_late_attempt_of_a_released_ticket_is_refused() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.waits(2);
    bench.release(2);
    bench.release(1);
    for n in [1, 2] {
        let ticket = bench.ticket(n);
        let answer = bench.state.attempt(&ticket, n, bench.now);
        assert_eq!(answer, Err(WasReleased));
    }
    assert_eq!(bench.state.counts(bench.now), (0, 0, 0));
}

#[test]
fn wake_ups_are_kept_until_the_watch_opens() {
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.waits(2);
    bench.release(1);
    assert!(matches!(bench.watch(2, 2), Some(Wake::Granted(_))));
    // A ticket that the store does not know may have missed anything.
    assert_eq!(bench.watch(3, 3), Some(Wake::Retry));
}

#[test]
fn with_every_push_lost_a_heartbeat_finds_the_grant() {
    let mut bench = Bench::fifo();
    bench.state.globals.loses_wakes = true;
    bench.granted(1);
    bench.waits(2);
    bench.release(1);
    assert_eq!(bench.next(2), None);
    bench.granted(2);
}

#[test]
fn hints_do_not_pile_up() {
    let mut bench = Bench::new(rules(Queueing::Barging, Waiting::Push));
    bench.granted(1);
    bench.waits(2);
    for n in 1..10 {
        bench.release(2 * n - 1);
        bench.granted(2 * n + 1);
    }
    assert_eq!(bench.watch(2, 2), Some(Wake::Retry));
    assert_eq!(bench.next(2), None);
}

#[test]
fn racing_waiters_are_all_woken_and_the_first_takes_it() {
    let mut bench = Bench::new(rules(Queueing::Barging, Waiting::Push));
    bench.granted(1);
    bench.waits(2);
    bench.waits(3);
    bench.release(1);
    assert_eq!(bench.next(2), Some(Wake::Retry));
    assert_eq!(bench.next(3), Some(Wake::Retry));
    bench.granted(4);
    bench.release(4);
    bench.granted(3);
    assert_eq!(bench.look().unwrap().waiters, Some(1));
    bench.waits(5);
    bench.sleep(secs(5));
    bench.waits(2);
    bench.sleep(WINDOW - secs(5));
    assert_eq!(bench.look().unwrap().waiters, Some(1));
    bench.release(2);
    bench.release(3);
    assert_eq!(bench.look(), None);
}

#[test]
fn a_polled_queue_keeps_its_order_without_wake_ups() {
    let mut bench = Bench::new(rules(Queueing::Fifo, Waiting::Poll));
    bench.granted(1);
    bench.waits(2);
    bench.waits(3);
    bench.release(1);
    bench.waits(3);
    bench.granted(2);
    assert_eq!(bench.next(2), None);
    let mut bench = Bench::new(rules(Queueing::Barging, Waiting::Poll));
    bench.granted(1);
    bench.waits(2);
    assert_eq!(bench.look().unwrap().waiters, None);
    assert_eq!(bench.state.counts(bench.now), (1, 0, 0));
}

#[test]
fn a_break_ends_the_hold_and_passes_on() {
    let mut bench = Bench::sessions(secs(10));
    assert_eq!(bench.state.break_lock(&name(), bench.now), None);
    let first = bench.granted(1);
    bench.watch(1, 1);
    bench.waits(2);
    let was = bench.state.break_lock(&name(), bench.now).unwrap();
    assert_eq!(was.token, Some(first.token));
    assert_eq!(was.waiters, Some(1));
    assert_eq!(bench.next(1), Some(Wake::Lost(LossReason::Superseded)));
    assert_eq!(bench.holder(), Some(2));
}

#[test]
fn a_session_carries_its_holds_and_places() {
    let mut bench = Bench::sessions(secs(10));
    let start = bench.now;
    let grant = bench.granted(1);
    assert_eq!((grant.since, grant.ttl), (Some(start), secs(10)));
    bench.watch(1, 1);
    bench.waits(2);
    bench.sleep(secs(4));
    bench.waits(3);
    bench.sleep(secs(5));
    let now = bench.now;
    let renewed = Renewal::Renewed {
        since: Some(now),
        ttl: secs(10),
    };
    assert_eq!(bench.renew(1), renewed);
    bench.watch(2, 2);
    // The second session has been silent for ten seconds, the third for six.
    bench.sleep(secs(1));
    assert_eq!(bench.look().unwrap().waiters, Some(1));
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
    bench.state.end_session(2, bench.now);
    assert_eq!(
        bench.watch(2, 2),
        Some(Wake::Lost(LossReason::SessionEnded))
    );
    bench.state.end_session(1, bench.now);
    assert_eq!(bench.holder(), Some(3));
    assert_eq!(
        bench.watch(1, 1),
        Some(Wake::Lost(LossReason::SessionEnded))
    );
    // The handle lives on, in a new session; its old hold does not.
    assert_eq!(bench.renew(1), Renewal::NotHeld);
}

#[test]
fn a_wipe_is_told_where_losses_are_told() {
    let mut bench = Bench::sessions(secs(10));
    bench.granted(1);
    bench.watch(1, 1);
    bench.state.wipe();
    assert_eq!(bench.next(1), Some(Wake::Lost(LossReason::Superseded)));
    let mut bench = Bench::fifo();
    bench.granted(1);
    bench.waits(2);
    bench.state.wipe();
    assert_eq!(bench.state.counts(bench.now), (0, 0, 0));
    bench.granted(2);
}

#[test]
fn a_list_is_sorted_and_shows_what_lives() {
    let mut bench = Bench::fifo();
    for (n, name) in ["b", "a/2", "a/1"].into_iter().enumerate() {
        let ticket = bench
            .ticket(n as u64)
            .with_name(LockName::new(name).unwrap());
        bench.state.attempt(&ticket, 0, bench.now).unwrap();
    }
    let found = bench.state.list("a/", bench.now);
    let names: Vec<_> = found.iter().map(|state| state.name.as_str()).collect();
    assert_eq!(names, ["a/1", "a/2"]);
    assert_eq!(found[0].remaining, Some(TTL));
    bench.sleep(TTL);
    assert_eq!(bench.state.list("", bench.now), []);
}
