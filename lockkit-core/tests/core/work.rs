//! Work that a store does in the step that grants or ends a hold, with paused time.
#![expect(clippy::panic, reason = "tests fail by panicking")]

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::clock::TokioClock;
use lockkit_core::contract::{
    Attempt, LockState, Release, Renewal, Ticket, Watch, Work as TicketWork,
};
use lockkit_core::layers::{Fault, Faults, Faulty, Operation, Rule};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{
    BackendError, Capabilities, DistributedLock, Error, Lease, LockClient, LockName, Outcome,
};
use tokio::time::sleep;

use crate::slow::{Slow, poll_times};

const S: Duration = Duration::from_secs(1);

/// Counts how often it was done.
#[derive(Debug, Default)]
struct Work(AtomicUsize);

impl Work {
    fn done(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn work() -> (Arc<Work>, TicketWork) {
    let work = Arc::new(Work::default());
    (Arc::clone(&work), TicketWork::new(work))
}

/// Does the work of tickets, and writes down which requests had some.
#[derive(Debug)]
struct Working {
    inner: Slow,
    requests: Mutex<Vec<(&'static str, bool)>>,
}

impl Working {
    fn request(&self, what: &'static str, ticket: &Ticket) {
        let has_work = ticket.work.is_some();
        self.requests.lock().unwrap().push((what, has_work));
    }

    fn work(ticket: &Ticket) {
        if let Some(work) = ticket.work.as_ref().and_then(TicketWork::get::<Work>) {
            work.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The requests of a kind, and how many of them had work.
    fn requests(&self, what: &str) -> (usize, usize) {
        let requests = self.requests.lock().unwrap();
        let of_kind = requests.iter().filter(|(kind, _)| *kind == what);
        let with_work = of_kind.clone().filter(|(_, has_work)| *has_work);
        (of_kind.count(), with_work.count())
    }
}

#[async_trait]
impl DistributedLock for Working {
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.request("attempt", ticket);
        let answer = self.inner.attempt(ticket).await;
        if matches!(answer, Ok(Attempt::Granted(_))) {
            Self::work(ticket);
        }
        answer
    }
    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        self.inner.watch(ticket).await
    }
    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        tickets.iter().for_each(|it| self.request("renew", it));
        self.inner.renew(tickets).await
    }
    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.request("release", ticket);
        let answer = self.inner.release(ticket).await;
        if matches!(answer, Ok(Release::Released)) {
            Self::work(ticket);
        }
        answer
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
    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool, BackendError> {
        self.request("note", ticket);
        self.inner.note(ticket, text).await
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A client, the faults between it and its store, and what is in the store.
fn setup() -> (LockClient, Faults, MemoryStore) {
    let clock = Arc::new(TokioClock::new());
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let working = Working {
        inner: Slow::new(memory.connect(), 2),
        requests: Mutex::default(),
    };
    let store = Faulty::new(Arc::new(working), 1);
    let faults = store.faults();
    let builder = LockClient::builder(store).clock(clock);
    let builder = builder.lease(Lease::renewed(3 * S)).timeout(S);
    (builder.build().unwrap(), faults, memory)
}

#[tokio::test(start_paused = true)]
async fn only_awaited_requests_of_the_caller_have_work() {
    let (client, _, memory) = setup();
    let other = LockClient::new(memory.connect()).unwrap();
    let (entry, entering) = work();
    let lock = client.lock("a").unwrap();
    let lock = lock.with_work(entering).unwrap();
    // Dropped while it asks, while it waits, and as a hold.
    for polls in 0..8 {
        drop(poll_times(lock.acquire(), polls).await);
        drop(poll_times(lock.try_acquire(), polls).await);
        client.drain().await;
    }
    let held = other.lock("a").unwrap().acquire().await.unwrap();
    drop(poll_times(lock.acquire(), 20).await);
    held.release().await.unwrap();
    client.drain().await;
    let guard = lock.acquire().await.unwrap();
    sleep(5 * S).await;
    guard.note("busy").await.unwrap();
    assert!(guard.ticket().work.is_none());
    guard.release().await.unwrap();
    let store = client.store::<Working>().unwrap();
    let (attempts, with_work) = store.requests("attempt");
    assert!(attempts > 8 && with_work == attempts && entry.done() > 5);
    for what in ["renew", "release", "note"] {
        let (requests, with_work) = store.requests(what);
        assert!(requests > 0 && with_work == 0, "{what}: {with_work}");
    }
    assert!(memory.is_empty());
}

/// What the client reports of work whose first release fails in this way and later ones in that way, and how often
/// it was done.
async fn released(first: Option<Fault>, later: Option<Fault>) -> (Result<(), Outcome>, usize) {
    let (client, faults, memory) = setup();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    if let Some(first) = first {
        faults.inject(Rule::new(first).on(Operation::Release).times(1));
    }
    let (work, leaving) = work();
    let begin_to_fail = async {
        faults.called(Operation::Release, 1).await;
        if let Some(later) = later {
            faults.inject(Rule::new(later).on(Operation::Release));
        }
    };
    let (released, ()) = tokio::join!(guard.release_with(leaving), begin_to_fail);
    let reported = match released {
        Ok(()) => Ok(()),
        Err(Error::Backend(error)) => Err(error.outcome()),
        Err(other) => panic!("{other}"),
    };
    let done = work.done();
    faults.heal();
    client.drain().await;
    assert!(memory.is_empty());
    assert_eq!(work.done(), done, "it was done late");
    (reported, done)
}

#[tokio::test(start_paused = true)]
async fn work_without_a_reply_is_done_once_and_never_denied() {
    use Outcome::{Indeterminate, Rejected, Unavailable};
    let fail = |outcome| Some(Fault::Fail(outcome));
    let lost = || Some(Fault::DropReply);
    assert_eq!(released(None, None).await, (Ok(()), 1));
    assert_eq!(released(lost(), None).await, (Err(Indeterminate), 1));
    for later in [Indeterminate, Rejected, Unavailable] {
        let reported = released(lost(), fail(later)).await;
        assert_eq!(reported, (Err(Indeterminate), 1), "then {later}");
        assert_eq!(released(fail(later), fail(later)).await, (Err(later), 0));
    }
    for passing in [Indeterminate, Unavailable] {
        assert_eq!(released(fail(passing), None).await, (Ok(()), 1));
        let reported = released(fail(passing), lost()).await;
        assert_eq!(reported, (Err(Indeterminate), 1), "after {passing}");
    }
    let reported = released(fail(Rejected), None).await;
    assert_eq!(reported, (Err(Rejected), 0));
}

#[tokio::test(start_paused = true)]
async fn work_of_a_hold_that_has_ended_is_not_done() {
    let (client, faults, memory) = setup();
    let lock = client.lock("a").unwrap();
    let guard = lock.acquire().await.unwrap();
    memory.wipe();
    let (work, leaving) = work();
    let lost = guard.release_with(leaving).await;
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    let guard = lock.acquire().await.unwrap();
    faults.black_hole();
    let _ = guard.lost().await;
    let lost = guard.release_with(TicketWork::new(Arc::clone(&work))).await;
    assert!(matches!(lost, Err(Error::Lost { .. })), "{lost:?}");
    faults.heal();
    client.drain().await;
    assert_eq!(work.done(), 0);
}

#[tokio::test(start_paused = true)]
async fn hold_that_others_need_is_refused() {
    let (client, _, memory) = setup();
    let lock = client.lock("a").unwrap();
    let kept = lock.clone().with_min_hold(S).with_work(work().1);
    assert!(matches!(kept, Err(Error::InvalidOption { .. })), "{kept:?}");
    let guard = lock.acquire().await.unwrap();
    let other = guard.reenter().unwrap();
    let (work, leaving) = work();
    let refused = guard.release_with(leaving).await;
    assert!(
        matches!(refused, Err(Error::InvalidOption { .. })),
        "{refused:?}"
    );
    assert_eq!((work.done(), other.guard_count()), (0, 1));
    other.release().await.unwrap();
    assert!(memory.is_empty());
}

#[tokio::test(start_paused = true)]
async fn release_with_work_dropped_after_any_poll_still_releases() {
    for polls in 0..12 {
        let (client, _, memory) = setup();
        let guard = client.lock("a").unwrap().acquire().await.unwrap();
        let (work, leaving) = work();
        let released = poll_times(guard.release_with(leaving), polls).await;
        client.drain().await;
        assert!(memory.is_empty(), "after {polls} polls");
        // It is done if it was sent.
        assert_eq!(work.done(), usize::from(polls > 0), "after {polls} polls");
        assert!(released.is_none() || polls > 1);
    }
}
