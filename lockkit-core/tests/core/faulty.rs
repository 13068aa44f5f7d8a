//! Each fault on a real store, with paused time.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::TokioClock;
use lockkit_core::contract::{Attempt, DistributedLock, Release, Renewal, Ticket, Wake};
use lockkit_core::layers::{Fault, Faults, Faulty, Operation, Rule};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{BackendError, ClientId, HolderId, LockName, Outcome};
use tokio::time::{Instant, timeout};

const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    memory: MemoryStore,
    store: Faulty,
    faults: Faults,
    client: ClientId,
}

impl Bench {
    fn new() -> Self {
        let clock = Arc::new(TokioClock::new());
        let memory = MemoryStore::builder().clock(clock).build();
        let store = Faulty::new(Arc::new(memory.clone()), 1);
        Self {
            faults: store.faults(),
            memory,
            store,
            client: ClientId::random(),
        }
    }

    fn ticket(&self, n: u64, name: &str) -> Ticket {
        let holder = HolderId::new(self.client, n);
        Ticket::new(LockName::new(name).unwrap(), holder, 30 * SECOND)
    }
}

fn outcome<T>(answer: Result<T, BackendError>) -> Option<Outcome> {
    answer.err().map(|error| error.outcome())
}

#[tokio::test(start_paused = true)]
async fn without_rules_it_is_the_store_and_counts() {
    let bench = Bench::new();
    let ticket = bench.ticket(1, "a");
    assert!(matches!(
        bench.store.attempt(&ticket).await,
        Ok(Attempt::Granted(_))
    ));
    assert!(bench.store.renew(std::slice::from_ref(&ticket)).await[0].is_ok());
    assert_eq!(bench.store.list("").await.unwrap().len(), 1);
    assert!(bench.store.inspect(&ticket.name).await.unwrap().is_some());
    assert!(
        bench
            .store
            .break_lock(&ticket.name)
            .await
            .unwrap()
            .is_some()
    );
    assert!(bench.store.watch(&ticket).await.is_ok());
    assert_eq!(
        bench.store.release(&ticket).await.unwrap(),
        Release::NotHeld
    );
    let other = bench.ticket(2, "a");
    assert!(!bench.store.note(&other, "none").await.unwrap());
    let adopted = bench.store.adopt(ticket.holder, &other).await.unwrap();
    assert!(matches!(adopted, Attempt::Held { .. }));
    for operation in Operation::ALL {
        assert_eq!(bench.faults.calls(operation), 1, "{operation:?}");
    }
    assert_eq!((bench.faults.all_calls(), bench.faults.injected()), (9, 0));
    bench.faults.reset_counts();
    assert_eq!(bench.faults.all_calls(), 0);
    assert!(bench.store.as_any().is::<MemoryStore>());
}

#[tokio::test(start_paused = true)]
async fn a_failure_has_no_effect_and_a_dropped_reply_has() {
    let bench = Bench::new();
    let ticket = bench.ticket(1, "a");
    let fail = Fault::Fail(Outcome::Unavailable);
    bench.faults.inject(Rule::new(fail).times(1));
    let answer = bench.store.attempt(&ticket).await;
    assert_eq!(outcome(answer), Some(Outcome::Unavailable));
    assert!(bench.memory.is_empty());
    bench.faults.inject(Rule::new(Fault::DropReply).times(1));
    let answer = bench.store.attempt(&ticket).await;
    assert_eq!(outcome(answer), Some(Outcome::Indeterminate));
    assert_eq!(bench.memory.counts().holds, 1);
    assert_eq!(bench.faults.injected(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_late_request_is_carried_out_after_its_error() {
    let bench = Bench::new();
    let (min, max) = (2 * SECOND, 3 * SECOND);
    bench
        .faults
        .inject(Rule::new(Fault::Late { min, max }).times(1));
    let begin = Instant::now();
    let answer = bench.store.attempt(&bench.ticket(1, "a")).await;
    assert_eq!(outcome(answer), Some(Outcome::Indeterminate));
    assert_eq!(begin.elapsed(), Duration::ZERO);
    assert!(bench.memory.is_empty());
    bench.faults.settled().await;
    assert!((min..=max + SECOND / 100).contains(&begin.elapsed()));
    assert_eq!(bench.memory.counts().holds, 1);
}

#[tokio::test(start_paused = true)]
async fn a_delay_comes_before_the_effect_and_a_slow_reply_after_it() {
    for (fault, holds) in [
        (
            Fault::Delay {
                min: 2 * SECOND,
                max: 2 * SECOND,
            },
            0,
        ),
        (
            Fault::SlowReply {
                min: 2 * SECOND,
                max: 2 * SECOND,
            },
            1,
        ),
    ] {
        let bench = Bench::new();
        bench.faults.inject(Rule::new(fault));
        let ticket = bench.ticket(1, "a");
        let mut call = bench.store.attempt(&ticket);
        assert!(timeout(SECOND, &mut call).await.is_err());
        assert_eq!(bench.memory.counts().holds, holds, "{fault:?}");
        assert!(call.await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn what_hangs_goes_on_when_healed() {
    for break_it in [Faults::black_hole, |faults: &Faults| {
        faults.inject(Rule::new(Fault::Hang))
    }] {
        let bench = Bench::new();
        break_it(&bench.faults);
        let ticket = bench.ticket(1, "a");
        let mut call = bench.store.attempt(&ticket);
        assert!(timeout(60 * SECOND, &mut call).await.is_err());
        assert!(bench.memory.is_empty());
        bench.faults.heal();
        assert!(matches!(call.await, Ok(Attempt::Granted(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_refuses_calls_and_holds_wake_ups_back() {
    let bench = Bench::new();
    let (first, second) = (bench.ticket(1, "a"), bench.ticket(2, "a"));
    bench.memory.attempt(&first).await.unwrap();
    bench.store.attempt(&second).await.unwrap();
    let mut watch = bench.store.watch(&second).await.unwrap();
    bench.faults.outage();
    bench.memory.release(&first).await.unwrap();
    let answer = bench.store.attempt(&second).await;
    assert_eq!(outcome(answer), Some(Outcome::Unavailable));
    let answers = bench.store.renew(&[first, second]).await;
    assert_eq!(answers.len(), 2);
    assert!(timeout(SECOND, watch.changed()).await.is_err());
    bench.faults.heal();
    assert!(matches!(watch.changed().await, Ok(Wake::Granted(_))));
}

#[tokio::test(start_paused = true)]
async fn wake_ups_get_lost() {
    let bench = Bench::new();
    let (first, second) = (bench.ticket(1, "a"), bench.ticket(2, "a"));
    bench.store.attempt(&first).await.unwrap();
    bench.store.attempt(&second).await.unwrap();
    bench.faults.lose_wakes(1.0);
    let mut watch = bench.store.watch(&second).await.unwrap();
    bench.store.release(&first).await.unwrap();
    assert!(timeout(SECOND, watch.changed()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_fault_hits_one_ticket_of_a_batch() {
    let bench = Bench::new();
    let names = ["fine", "failed", "dropped", "late", "hung", "not held"];
    let tickets: Vec<_> = (0..)
        .zip(names)
        .map(|(n, name)| bench.ticket(n, name))
        .collect();
    for ticket in &tickets[..5] {
        bench.memory.attempt(ticket).await.unwrap();
    }
    let late = Fault::Late {
        min: SECOND,
        max: SECOND,
    };
    let faults = [
        Fault::Fail(Outcome::Unavailable),
        Fault::DropReply,
        late,
        Fault::Hang,
    ];
    for (fault, ticket) in faults.into_iter().zip(&tickets[1..]) {
        let rule = Rule::new(fault).on(Operation::Renew);
        bench.faults.inject(rule.for_name(ticket.name.clone()));
    }
    tokio::time::advance(10 * SECOND).await;
    let answers = bench.store.renew(&tickets).await;
    assert!(matches!(answers[5], Ok(Renewal::NotHeld)));
    let outcomes: Vec<_> = answers.into_iter().map(outcome).collect();
    let lost = Some(Outcome::Indeterminate);
    let failed = Some(Outcome::Unavailable);
    assert_eq!(outcomes, [None, failed, lost, lost, lost, None]);
    // 30 s where it was renewed, 20 s where not.
    let left = async |ticket: &Ticket| {
        let state = bench.memory.inspect(&ticket.name).await.unwrap();
        state.unwrap().remaining.unwrap()
    };
    for (n, seconds) in [30, 20, 30, 20, 20].into_iter().enumerate() {
        assert_eq!(left(&tickets[n]).await, seconds * SECOND, "{}", names[n]);
    }
    bench.faults.settled().await;
    assert!(left(&tickets[3]).await > 29 * SECOND);
    assert_eq!(bench.faults.calls(Operation::Renew), 1);
    assert_eq!(bench.faults.injected(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_fault_hits_a_whole_batch() {
    let bench = Bench::new();
    let tickets = [bench.ticket(1, "a"), bench.ticket(2, "b")];
    bench
        .faults
        .inject(Rule::new(Fault::DropReply).on(Operation::Renew).times(1));
    let answers = bench.store.renew(&tickets).await.into_iter();
    let outcomes: Vec<_> = answers.map(outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Indeterminate); 2]);
    let answers = bench.store.renew(&tickets).await;
    assert!(
        matches!(answers[..], [Ok(Renewal::NotHeld), Ok(Renewal::NotHeld)]),
        "{answers:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_delayed_on_both_ways() {
    let bench = Bench::new();
    let ticket = bench.ticket(1, "a");
    let (min, max) = (SECOND, SECOND);
    let slow = Rule::new(Fault::SlowReply { min, max });
    bench.faults.inject(Rule::new(Fault::Delay { min, max }));
    bench.faults.inject(slow.for_name(ticket.name.clone()));
    let begin = Instant::now();
    bench.store.renew(std::slice::from_ref(&ticket)).await;
    assert!((2 * SECOND..3 * SECOND).contains(&begin.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn a_test_can_await_calls_and_faults() {
    let bench = Bench::new();
    bench
        .faults
        .inject(Rule::new(Fault::DropReply).on(Operation::Release));
    let ticket = bench.ticket(1, "a");
    let work = async {
        bench.store.attempt(&ticket).await.unwrap();
        tokio::time::sleep(SECOND).await;
        drop(bench.store.release(&ticket).await);
    };
    let watch = async {
        bench.faults.called(Operation::Attempt, 1).await;
        assert_eq!(bench.faults.calls(Operation::Release), 0);
        bench.faults.struck(1).await;
        assert_eq!(bench.faults.calls(Operation::Release), 1);
    };
    tokio::join!(work, watch);
}

#[tokio::test(start_paused = true)]
async fn chaos_is_the_same_for_the_same_seed() {
    let run = async |seed| {
        let store = Faulty::new(Arc::new(MemoryStore::new()), seed);
        store.faults().chaos(0.1, SECOND);
        let holder = HolderId::new(ClientId::random(), 1);
        let ticket = Ticket::new(LockName::new("a").unwrap(), holder, 30 * SECOND);
        let mut seen = Vec::new();
        for _ in 0..100 {
            seen.push(outcome(store.attempt(&ticket).await));
        }
        (seen, store.faults().injected())
    };
    let (first, again, other) = (run(3).await, run(3).await, run(4).await);
    assert_eq!(first, again);
    assert_ne!(first.0, other.0);
    assert!(first.0.contains(&None) && first.1 > 20);
}

#[tokio::test(start_paused = true)]
async fn a_rule_hits_what_it_names_and_as_often() {
    let bench = Bench::new();
    let (a, b) = (bench.ticket(1, "a"), bench.ticket(2, "b"));
    let rule = Rule::new(Fault::DropReply).on(Operation::Attempt);
    bench.faults.inject(rule.for_name(a.name.clone()).times(2));
    bench.store.attempt(&b).await.unwrap();
    bench.store.release(&a).await.unwrap();
    bench.store.list("").await.unwrap();
    let a = bench.ticket(3, "a");
    let lost = Some(Outcome::Indeterminate);
    for expected in [lost, lost, None] {
        assert_eq!(outcome(bench.store.attempt(&a).await), expected);
    }
    assert_eq!(bench.faults.injected(), 2);
}

#[tokio::test(start_paused = true)]
async fn delays_add_up_and_the_first_end_counts() {
    let bench = Bench::new();
    let (min, max) = (SECOND, SECOND);
    let delay = Fault::Delay { min, max };
    let fail = Fault::Fail(Outcome::Rejected);
    for fault in [delay, fail, delay, Fault::DropReply] {
        bench.faults.inject(Rule::new(fault));
    }
    let begin = Instant::now();
    let answer = bench.store.list("").await;
    assert_eq!(outcome(answer), Some(Outcome::Rejected));
    assert!((2 * SECOND..3 * SECOND).contains(&begin.elapsed()));
    assert_eq!(bench.faults.injected(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_rule_hits_with_its_probability() {
    let bench = Bench::new();
    for fault in [Fault::DropReply, Fault::Fail(Outcome::Unavailable)] {
        bench.faults.inject(Rule::new(fault).with_probability(0.3));
    }
    let mut hit = 0;
    for _ in 0..200 {
        hit += u32::from(bench.store.list("").await.is_err());
    }
    assert!((60..140).contains(&hit), "{hit} of 200");
}

/// As the contract says, whatever is late.
#[tokio::test(start_paused = true)]
async fn calls_for_one_ticket_never_overlap() {
    let slow = Faulty::new(Arc::new(MemoryStore::new()), 1);
    let takes = Fault::Delay {
        min: SECOND,
        max: SECOND,
    };
    slow.faults()
        .inject(Rule::new(takes).on(Operation::Attempt));
    let store = Faulty::new(Arc::new(slow), 1);
    let late = Fault::Late {
        min: Duration::ZERO,
        max: Duration::ZERO,
    };
    let rule = Rule::new(late).on(Operation::Attempt).times(1);
    store.faults().inject(rule);
    let holder = HolderId::new(ClientId::random(), 1);
    let ticket = Ticket::new(LockName::new("a").unwrap(), holder, 30 * SECOND);
    let began = Instant::now();
    let answer = store.attempt(&ticket).await;
    assert_eq!(outcome(answer), Some(Outcome::Indeterminate));
    tokio::task::yield_now().await;
    assert!(began.elapsed() < SECOND);
    assert_eq!(store.release(&ticket).await.unwrap(), Release::Released);
    assert!(began.elapsed() >= SECOND, "beside the attempt");
}
