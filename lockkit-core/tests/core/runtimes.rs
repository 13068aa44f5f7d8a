//! A client on one runtime and a caller on another, which may end or block at any moment.

use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use lockkit_core::layers::{Fault, Faults, Faulty, Operation, Rule};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, Guard, Lease, Lock, LockClient, LockClientBuilder, LossReason, Outcome};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

#[cfg(unix)]
use crate::scratch::Scratch;

const MS: Duration = Duration::from_millis(1);
const SOON: Duration = Duration::from_secs(5);

struct Stage {
    /// The client's runtime.
    home: Runtime,
    store: MemoryStore,
    faults: Faults,
    client: LockClient,
}

impl Stage {
    fn new() -> Self {
        Self::build(|client| client)
    }

    /// Its client gives requests up soon.
    fn impatient() -> Self {
        Self::build(|client| client.timeout(100 * MS).outage(300 * MS))
    }

    fn build(limit: impl FnOnce(LockClientBuilder) -> LockClientBuilder) -> Self {
        let home = Runtime::new().unwrap();
        let store = MemoryStore::new();
        let faulty = Faulty::new(Arc::new(store.connect()), 1);
        let faults = faulty.faults();
        let client = {
            let _inside = home.enter();
            limit(LockClient::builder(faulty)).build().unwrap()
        };
        Self {
            home,
            store,
            faults,
            client,
        }
    }

    fn lock(&self) -> Lock {
        self.client.lock("a").unwrap()
    }

    fn acquire(&self) -> Guard {
        self.home.block_on(self.lock().acquire()).unwrap()
    }

    /// Everything that was dropped is released, soon.
    fn nothing_is_left(&self) {
        let drained = async { timeout(SOON, self.client.drain()).await };
        self.home.block_on(drained).expect("drain() ends");
        assert!(self.store.is_empty(), "{:?}", self.store.counts());
    }

    /// A second task of the client's runtime that waits behind the first.
    fn second(&self) -> tokio::task::JoinHandle<Result<Guard, Error>> {
        let (waits, waiting) = mpsc::channel();
        let lock = self.lock();
        let second = self.home.spawn(async move {
            let mut acquire = Box::pin(lock.acquire());
            begins(acquire.as_mut()).await;
            waits.send(()).unwrap();
            acquire.await
        });
        waiting.recv().unwrap();
        second
    }
}

/// Polls a call once, which is not enough.
async fn begins<F: Future>(mut call: Pin<&mut F>) {
    let pending =
        std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending()));
    assert!(pending.await, "it has ended at once");
}

fn elsewhere() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

#[test]
fn acquire_dropped_with_its_runtime_leaves_the_others_queued() {
    let stage = Stage::new();
    stage.faults.black_hole();
    let elsewhere = elsewhere();
    let lock = stage.lock();
    let mut first = Box::pin(lock.acquire());
    elsewhere.block_on(begins(first.as_mut()));
    let second = stage.second();
    drop(first);
    drop(elsewhere);
    stage.faults.heal();
    let second = stage.home.block_on(async { timeout(SOON, second).await });
    drop(second.expect("the second is served").unwrap().unwrap());
    stage.nothing_is_left();
}

/// Its hold has no lease that would end it.
#[test]
#[cfg(unix)]
fn file_is_unlocked_when_the_clients_runtime_has_stopped() {
    let scratch = Scratch::new();
    let home = Runtime::new().unwrap();
    let client = {
        let _inside = home.enter();
        LockClient::new(scratch.store()).unwrap()
    };
    let [kept, dropped] = ["kept", "dropped"].map(|name| client.lock(name).unwrap());
    let kept = home.block_on(kept.acquire()).unwrap();
    let dropped = home.block_on(dropped.acquire()).unwrap();
    drop(home);
    drop(dropped);
    assert!(kept.check().is_err());
    elsewhere().block_on(async {
        let other = LockClient::new(scratch.store()).unwrap();
        for name in ["kept", "dropped"] {
            let guard = other.lock(name).unwrap().try_acquire().await.unwrap();
            guard.expect("it is unlocked").release().await.unwrap();
        }
    });
}

/// Waiters of a file keep its gate locked, which keeps newcomers out.
#[test]
#[cfg(unix)]
fn waiter_is_forgotten_when_the_clients_runtime_has_stopped() {
    let scratch = Scratch::new();
    let home = Runtime::new().unwrap();
    let clients = [scratch.store(), scratch.store()].map(|store| {
        let _inside = home.enter();
        LockClient::new(store).unwrap()
    });
    let [waiter, holder] = clients.each_ref().map(|client| client.lock("a").unwrap());
    let elsewhere = elsewhere();
    let gate = || {
        let entries = std::fs::read_dir(&scratch.0).unwrap();
        let mut names = entries.map(|entry| entry.unwrap().file_name());
        names.any(|name| name.to_string_lossy().ends_with(".gate"))
    };
    let mut waiting = Box::pin(waiter.acquire());
    elsewhere.block_on(async {
        let held = holder.acquire().await.unwrap();
        while !gate() {
            let early = timeout(10 * MS, waiting.as_mut()).await;
            assert!(early.is_err(), "{early:?}");
        }
        held.leak();
    });
    drop(home);
    drop(waiting);
    drop(clients);
    elsewhere.block_on(async {
        let other = LockClient::new(scratch.store()).unwrap();
        let guard = other.lock("a").unwrap().try_acquire().await.unwrap();
        guard.expect("nobody waits").release().await.unwrap();
    });
}

#[test]
fn work_that_is_done_keeps_its_value_when_the_clients_runtime_stops() {
    let Stage {
        home,
        faults,
        client,
        ..
    } = Stage::new();
    let lock = client.lock("a").unwrap();
    faults.inject(Rule::new(Fault::Hang).on(Operation::Release));
    let releasing = faults.clone();
    let work = std::thread::spawn(move || elsewhere().block_on(lock.scope(async |_| 7)));
    while releasing.calls(Operation::Release) == 0 {
        std::thread::sleep(MS);
    }
    drop(home);
    assert_eq!(work.join().unwrap().unwrap(), 7);
}

#[test]
fn blocked_runtime_delays_no_other() {
    let stage = Stage::impatient();
    let elsewhere = elsewhere();
    let lock = stage.lock();
    stage.faults.black_hole();
    let mut first = Box::pin(lock.acquire());
    elsewhere.block_on(begins(first.as_mut()));
    let second = stage.second();
    let second = stage.home.block_on(async { timeout(SOON, second).await });
    let second = second.expect("the outage counts").unwrap();
    assert!(matches!(second, Err(Error::Backend(_))), "{second:?}");
    stage.faults.heal();
    // It is never polled, only dropped.
    drop(first);
    stage.nothing_is_left();
}

#[test]
fn caller_that_resumes_after_a_pause_has_the_lock() {
    let stage = Stage::new();
    let elsewhere = elsewhere();
    let lock = stage.lock();
    stage.faults.black_hole();
    let mut first = Box::pin(lock.acquire());
    elsewhere.block_on(begins(first.as_mut()));
    stage.faults.heal();
    let guard = elsewhere.block_on(async { timeout(SOON, first).await.unwrap().unwrap() });
    elsewhere.block_on(guard.release()).unwrap();
    assert!(stage.store.is_empty());
}

/// Without timers of its own, a caller learns of the loss from the client's runtime.
#[test]
fn loss_is_noticed_without_timers() {
    let stage = Stage::new();
    let lock = stage.lock().with_lease(Lease::renewed(300 * MS)).unwrap();
    let guard = stage.home.block_on(lock.acquire()).unwrap();
    stage.faults.black_hole();
    let (tell, told) = mpsc::channel();
    let (bare, outside) = (guard.lost(), guard.lost());
    let tell_bare = tell.clone();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().build().unwrap();
        tell_bare.send(runtime.block_on(bare)).unwrap();
    });
    std::thread::spawn(move || tell.send(block_on(outside)).unwrap());
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(SOON), Ok(LossReason::Expired));
    }
}

/// Polls outside a runtime.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Woken(mpsc::Sender<()>);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let (wake, woken) = mpsc::channel();
    let waker = Arc::new(Woken(wake)).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        woken.recv().unwrap();
    }
}

#[test]
fn try_dropped_with_its_runtime_leaves_nothing() {
    let stage = Stage::new();
    stage.faults.black_hole();
    let elsewhere = elsewhere();
    elsewhere.block_on(async { begins(pin!(stage.lock().try_acquire())).await });
    drop(elsewhere);
    stage.faults.heal();
    stage.nothing_is_left();
}

#[test]
fn release_dropped_with_its_runtime_goes_on() {
    let stage = Stage::new();
    let guard = stage.acquire();
    stage.faults.black_hole();
    let elsewhere = elsewhere();
    elsewhere.block_on(async { begins(pin!(guard.release())).await });
    drop(elsewhere);
    stage.faults.heal();
    stage.nothing_is_left();
}

#[test]
fn release_on_a_blocked_runtime_goes_on() {
    let stage = Stage::impatient();
    let guard = stage.acquire();
    let hang = Rule::new(Fault::Hang).on(Operation::Release);
    stage.faults.inject(hang.times(1));
    let elsewhere = elsewhere();
    let mut release = Box::pin(guard.release());
    elsewhere.block_on(begins(release.as_mut()));
    stage.nothing_is_left();
    // Its own request had no answer in time.
    let answer = elsewhere.block_on(release);
    assert!(matches!(answer, Err(Error::Backend(_))), "{answer:?}");
}

#[test]
fn requests_from_another_runtime_are_answered() {
    let stage = Stage::new();
    let elsewhere = elsewhere();
    elsewhere.block_on(async {
        let guard = stage.lock().try_acquire().await.unwrap().unwrap();
        assert!(stage.lock().try_acquire().await.unwrap().is_none());
        assert_eq!(stage.client.list("").await.unwrap().len(), 1);
        let broken = stage.lock().break_lock().await.unwrap().unwrap();
        assert_eq!(broken.token, Some(guard.token()));
        assert!(stage.lock().inspect().await.unwrap().is_none());
        stage
            .faults
            .inject(Rule::new(Fault::Fail(Outcome::Rejected)));
        assert!(stage.lock().inspect().await.is_err());
        stage.faults.heal();
        stage.client.shutdown(Duration::ZERO).await.unwrap();
    });
}

#[test]
fn requests_after_the_clients_runtime_has_stopped_return_shutdown() {
    let Stage { home, client, .. } = Stage::new();
    drop(home);
    let lock = client.lock("a").unwrap();
    elsewhere().block_on(async {
        assert!(matches!(lock.try_acquire().await, Err(Error::Shutdown)));
        assert!(matches!(lock.acquire().await, Err(Error::Shutdown)));
        assert!(matches!(lock.inspect().await, Err(Error::Shutdown)));
    });
}

#[test]
fn waiters_of_a_client_whose_runtime_stops_get_shutdown() {
    let Stage { home, client, .. } = Stage::new();
    let lock = client.lock("a").unwrap();
    let held = home.block_on(lock.acquire()).unwrap();
    let elsewhere = elsewhere();
    let mut waiting = Box::pin(lock.acquire());
    let early = elsewhere.block_on(async { timeout(50 * MS, waiting.as_mut()).await });
    assert!(early.is_err(), "{early:?}");
    drop(home);
    let answer = elsewhere.block_on(async { timeout(SOON, waiting).await.unwrap() });
    assert!(matches!(answer, Err(Error::Shutdown)), "{answer:?}");
    drop(held);
}
