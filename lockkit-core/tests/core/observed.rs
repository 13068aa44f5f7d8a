//! The spans and the metrics of the calls of a store.
#![cfg(all(feature = "metrics", feature = "tracing"))]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::contract::{DistributedLock, Ticket};
use lockkit_core::layers::{Faults, Faulty, Instrumented};
use lockkit_core::memory::MemoryStore;
use lockkit_core::store::lock;
use lockkit_core::{ClientId, Error, HolderId, LockClient, LockName, LossReason};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};

use crate::slow::{ADDRESS, Slow};

/// Sends what this thread traces to a log. Another one takes what all threads trace: if there were only one,
/// and of one thread, an event that another thread reaches first would be off for this one, too.
fn trace_to(log: &Log) -> tracing::subscriber::DefaultGuard {
    let _ = tracing::subscriber::set_global_default(Log::default());
    tracing::subscriber::set_default(log.clone())
}

type Fields = BTreeMap<&'static str, String>;

/// The fields of every span and event, in the order in which they began.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Fields>>>);

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG && metadata.target().starts_with("lockkit")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        attributes.record(&mut Reader(&mut fields));
        let mut spans = lock(&self.0);
        spans.push(fields);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let at = usize::try_from(span.into_u64()).unwrap() - 1;
        values.record(&mut Reader(&mut lock(&self.0)[at]));
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Reader(&mut fields));
        lock(&self.0).push(fields);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// How often each series was touched, by `name{label,label}`.
#[derive(Clone, Debug, Default)]
struct Board(Arc<Mutex<BTreeMap<String, u64>>>);

struct Series(Board, String);

impl Series {
    fn new(board: &Board, key: &Key) -> Arc<Self> {
        let labels: Vec<_> = key.labels().map(metrics::Label::value).collect();
        let text = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::new(Self(board.clone(), text))
    }

    fn add(&self, value: u64) {
        *lock(&self.0.0).entry(self.1.clone()).or_default() += value;
    }
}

impl CounterFn for Series {
    fn increment(&self, value: u64) {
        self.add(value);
    }

    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Series {
    fn record(&self, _: f64) {
        self.add(1);
    }
}

impl Recorder for Board {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Series::new(self, key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Series::new(self, key))
    }
}

fn faulty() -> (Arc<Faulty>, Faults) {
    let faulty = Faulty::new(Arc::new(MemoryStore::new()), 1);
    let faults = faulty.faults();
    (Arc::new(faulty), faults)
}

/// Makes each call once, and attempts twice. Returns the second ticket.
async fn call(store: &dyn DistributedLock, faults: &Faults) -> Ticket {
    let ticket = |n| {
        let holder = HolderId::new(ClientId::random(), n);
        Ticket::new(LockName::new("a").unwrap(), holder, Duration::from_secs(30))
    };
    let (first, second) = (ticket(1), ticket(2));
    store.attempt(&first).await.unwrap();
    store.attempt(&second).await.unwrap();
    let mut watch = store.watch(&second).await.unwrap();
    store.renew(&[first.clone(), second.clone()]).await;
    store.release(&first).await.unwrap();
    watch.changed().await.unwrap();
    store.list("").await.unwrap();
    faults.outage();
    assert!(store.inspect(&second.name).await.is_err());
    faults.black_hole();
    let limit = Duration::from_secs(1);
    let call = tokio::time::timeout(limit, store.break_lock(&second.name)).await;
    assert!(call.is_err());
    second
}

#[tokio::test(start_paused = true)]
async fn every_call_has_a_span_with_its_outcome() {
    let log = Log::default();
    let _guard = trace_to(&log);
    let (store, faults) = faulty();
    let second = call(&Instrumented::new(store), &faults).await;
    let log = lock(&log.0);
    let word = |fields: &Fields, key| fields.get(key).cloned().unwrap_or_default();
    let seen: Vec<_> = log
        .iter()
        .map(|fields| {
            let [operation, wake, name, outcome] =
                ["operation", "wake", "name", "outcome"].map(|key| word(fields, key));
            format!("{operation}{wake} {name} {outcome}")
        })
        .collect();
    let expected = [
        "attempt a granted",
        "attempt a held",
        "watch a ok",
        "renew  not_held",
        "release a released",
        "granted a ",
        "list  ok",
        "inspect a unavailable",
        "break_lock a cancelled",
    ];
    assert_eq!(seen, expected);
    assert!(log.iter().all(|fields| fields["backend"] == "memory"));
    assert_eq!(log[1]["holder"], second.holder.to_string());
    assert_eq!(log[3]["tickets"], "2");
}

#[tokio::test(start_paused = true)]
async fn every_call_is_counted_by_its_outcome() {
    let board = Board::default();
    let _guard = metrics::set_default_local_recorder(&board);
    let (store, faults) = faulty();
    call(&Instrumented::new(store), &faults).await;
    let calls = [
        "attempt,granted",
        "attempt,held",
        "break_lock,cancelled",
        "inspect,unavailable",
        "list,ok",
        "release,released",
        "renew,not_held",
        "watch,ok",
    ];
    let series = ["calls_total", "call_seconds"];
    let series = series
        .iter()
        .flat_map(|series| calls.map(|call| format!("lockkit_store_{series}{{memory,{call}}}")));
    let others = [
        "renewals_total{memory,renewed}",
        "renewals_total{memory,not_held}",
        "wakes_total{memory,granted}",
    ];
    let others = others.map(|series| format!("lockkit_store_{series}"));
    let expected: BTreeMap<_, _> = series.chain(others).map(|series| (series, 1)).collect();
    assert_eq!(*lock(&board.0), expected);
}

/// What a client traces of its losses: the lock and the reason.
fn losses(log: &Log) -> Vec<String> {
    let log = lock(&log.0);
    let losses = log.iter().filter(|fields| fields.contains_key("reason"));
    losses
        .map(|fields| format!("{} {}", fields["lock"], fields["reason"]))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn loss_is_traced_if_it_concerns_a_guard() {
    let log = Log::default();
    let _guard = trace_to(&log);
    let second = Duration::from_secs(1);
    let store = MemoryStore::builder().sessions(10 * second).build();
    let connection = store.connect();
    let client = LockClient::new(connection.clone()).unwrap();
    let kept = client.lock("kept").unwrap().with_min_hold(60 * second);
    drop(kept.acquire().await.unwrap());
    let released = client.lock("released").unwrap().acquire().await.unwrap();
    released.release().await.unwrap();
    let guard = client.lock("guarded").unwrap().acquire().await.unwrap();
    tokio::time::sleep(second).await;
    connection.expire_session();
    guard.lost().await;
    tokio::time::sleep(second).await;
    assert_eq!(
        losses(&log),
        [format!("guarded {}", LossReason::SessionEnded)]
    );
}

/// As `Error` does, so that a log needs no chain of causes.
#[tokio::test(start_paused = true)]
async fn failed_renewal_and_the_loss_after_it_are_traced_with_their_cause() {
    let log = Log::default();
    let _guard = trace_to(&log);
    let (store, faults) = faulty();
    let client = LockClient::builder_arc(store).build().unwrap();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    faults.outage();
    guard.lost().await;
    let Error::Lost { source, .. } = guard.check().unwrap_err() else {
        panic!("it is not lost");
    };
    let cause = Error::from(source.unwrap()).to_string();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let log = lock(&log.0);
    let failed: Vec<_> = log
        .iter()
        .filter_map(|fields| fields.get("error"))
        .collect();
    assert_eq!(failed, [&cause]);
    let lost: Vec<_> = log
        .iter()
        .filter_map(|fields| fields.get("reason"))
        .collect();
    let reason = LossReason::Expired;
    assert_eq!(
        lost,
        [&format!("{reason}; the last renewal failed: {cause}")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_is_named_through_all_layers() {
    let store = Faulty::new(Arc::new(Slow::new(MemoryStore::new(), 0)), 1);
    let faults = store.faults();
    let store = Instrumented::new(Arc::new(store));
    let client = LockClient::new(store).unwrap();
    faults.black_hole();
    let error = client.lock("a").unwrap().inspect().await.unwrap_err();
    let silent = "inspect of the memory store failed: no answer within 2s";
    assert_eq!(error.to_string(), format!("{silent} ({ADDRESS})"));
}
