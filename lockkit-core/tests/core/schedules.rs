//! Thousands of random schedules under paused time: several clients with several tasks each on two
//! names, in all modes and on both names at once, over a store whose requests and replies are slow, late,
//! lost or refused, while tasks are cancelled at random moments. Everything follows from a seed, which a
//! failure prints:
//!
//! `LOCKKIT_SEED=17 cargo test -p lockkit-core --test core schedules` runs that one alone;
//! `LOCKKIT_SCHEDULES=100000` runs that many.
#![expect(
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests fail by panicking and run inside a runtime"
)]

mod referee;

use std::env;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lockkit_core::clock::{Clock, Moment, TokioClock};
use lockkit_core::contract::Mode;
use lockkit_core::layers::{Faults, Faulty};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{
    Error, FencingToken, Guard, Lease, Lock, LockClient, LossReason, MultiLock, Queueing, Waiting,
};
use tokio::time::{Instant, sleep, timeout};

use self::referee::{Believer, Held, Referee, mode};

const MS: Duration = Duration::from_millis(1);
const NAMES: [&str; 2] = ["a", "b"];

#[test]
fn no_schedule_breaks_a_promise() {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("LOCKKIT_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LOCKKIT_SCHEDULES").unwrap_or(3000),
    };
    for seed in seeds {
        if catch_unwind(|| run(seed)).is_err() {
            panic!("schedule failed; repeat it with LOCKKIT_SEED={seed}");
        }
    }
}

#[test]
fn seed_repeats_its_schedule() {
    for seed in 0..200 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// Answers every grant: when it came, and its token.
fn run(seed: u64) -> Vec<(Moment, FencingToken)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(schedule(seed))
}

async fn schedule(seed: u64) -> Vec<(Moment, FencingToken)> {
    let mut random = Rng::with_seed(seed);
    // The jitter of the clients comes from the generator of the thread.
    fastrand::seed(random.u64(..));
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
    let ttl = MS * random.u32(400..4000);
    let store = store(&mut random, &clock, ttl);
    let referee = Arc::new(Referee::new(Arc::clone(&clock)));
    let clients: Vec<_> = (0..random.u32(1..4))
        .map(|_| client(&mut random, &store, &clock, ttl))
        .collect();
    let mut tasks = Vec::new();
    for (client, _) in &clients {
        for _ in 0..random.u32(1..5) {
            let task = Task {
                client: client.clone(),
                referee: Arc::clone(&referee),
                ttl,
                random: random.fork(),
            };
            tasks.push(tokio::spawn(task.run()));
        }
    }
    let aborted = random.usize(0..tasks.len() * 2);
    sleep(MS * random.u32(0..20_000)).await;
    if let Some(task) = tasks.get(aborted) {
        task.abort();
    }
    sleep(MS * random.u32(0..20_000)).await;
    for (_, faults) in &clients {
        faults.heal();
    }
    for task in tasks {
        let ended = timeout(Duration::from_secs(3600), task)
            .await
            .expect("all are served after the faults");
        assert!(
            ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()),
            "a task panicked"
        );
    }
    leaves_nothing(&store, &clients, ttl).await;
    std::mem::take(&mut *referee.grants.lock().unwrap())
}

fn store(random: &mut Rng, clock: &Arc<dyn Clock>, ttl: Duration) -> MemoryStore {
    let builder = MemoryStore::builder().clock(Arc::clone(clock));
    match random.u32(0..5) {
        0 => builder.queueing(Queueing::Barging).build(),
        1 => builder
            .queueing(Queueing::Barging)
            .waiting(Waiting::Poll)
            .build(),
        2 | 3 => builder.sessions(ttl).build(),
        _ => builder.build(),
    }
}

fn client(
    random: &mut Rng,
    store: &MemoryStore,
    clock: &Arc<dyn Clock>,
    ttl: Duration,
) -> (LockClient, Faults) {
    let faulty = Faulty::new(Arc::new(store.connect()), random.u64(..));
    let faults = faulty.faults();
    if random.bool() {
        let probability = random.f64() * 0.3;
        faults.chaos(probability, MS * random.u32(1..3000));
    }
    let builder = LockClient::builder(faulty).clock(Arc::clone(clock));
    (
        builder
            .lease(Lease::renewed(ttl))
            .timeout(MS * random.u32(50..2000))
            .build()
            .unwrap(),
        faults,
    )
}

/// After everything was dropped and healed the store is empty, and the next acquire is quick.
async fn leaves_nothing(store: &MemoryStore, clients: &[(LockClient, Faults)], ttl: Duration) {
    for (client, faults) in clients {
        client.drain().await;
        faults.settled().await;
    }
    // What was leaked, and a late request of a ticket that was given up, last for a lease, at most one
    // that was extended; what is kept for its shortest hold time lasts for that.
    sleep(5 * ttl + 5000 * MS).await;
    assert!(store.is_empty(), "left behind: {:?}", store.counts());
    for name in NAMES {
        let began = Instant::now();
        let guard = clients[0].0.lock(name).unwrap().acquire().await.unwrap();
        assert!(began.elapsed() < 250 * MS);
        guard.release().await.unwrap();
    }
}

struct Task {
    client: LockClient,
    referee: Arc<Referee>,
    ttl: Duration,
    random: Rng,
}

impl Task {
    async fn run(mut self) {
        for _ in 0..self.random.u32(3..12) {
            sleep(MS * self.random.u32(0..800)).await;
            let Some(held) = self.acquire().await else {
                continue;
            };
            // A longest hold time of a few milliseconds may have passed before this task ran.
            let is_over = |guard: &Guard| {
                let reason = LossReason::MaxHold;
                matches!(guard.check(), Err(Error::Lost { reason: it, .. }) if it == reason)
            };
            if held.guards().iter().any(is_over) {
                continue;
            }
            let mut believer = self.referee.granted(held);
            self.work(believer.guards()).await;
            if self.random.bool() {
                believer = match self.downgrade(believer).await {
                    Some(reader) => reader,
                    None => continue,
                };
            }
            self.end(believer.end()).await;
        }
    }

    fn lock(&mut self, name: &str) -> Lock {
        let both = self.client.rw_lock(name).unwrap();
        let lock = match self.random.u32(0..8) {
            0 => both.read(),
            1 => both.write(),
            of @ 2..4 => self.client.semaphore(name, of).unwrap(),
            _ => self.client.lock(name).unwrap(),
        };
        match self.random.u32(0..5) {
            0 => lock.with_lease(Lease::fixed(self.ttl)).unwrap(),
            1 => lock.with_min_hold(MS * self.random.u32(1..5000)),
            2 => lock.with_max_hold(MS * self.random.u32(1..5000)).unwrap(),
            _ => lock,
        }
    }

    async fn acquire(&mut self) -> Option<Held> {
        let limit = MS * self.random.u32(0..5000);
        let way = self.random.u32(0..4);
        let both = self.random.u32(0..6) == 0;
        let answer = if both {
            let locks = NAMES.map(|name| self.lock(name));
            let lock = MultiLock::new(locks).unwrap();
            let answer = match way {
                0 => lock.try_acquire().await,
                1 => lock.acquire_timeout(limit).await.map(Some),
                2 => within(limit, lock.acquire()).await,
                _ => lock.acquire().await.map(Some),
            };
            answer.map(|guard| guard.map(Held::Both))
        } else {
            let name = NAMES[self.random.usize(0..NAMES.len())];
            let lock = self.lock(name);
            let answer = match way {
                0 => lock.try_acquire().await,
                1 => lock.acquire_timeout(limit).await.map(Some),
                2 => within(limit, lock.acquire()).await,
                _ => lock.acquire().await.map(Some),
            };
            answer.map(|guard| guard.map(Held::One))
        };
        match answer {
            Ok(held) => held,
            Err(Error::Timeout { .. } | Error::Backend(_) | Error::Shutdown) => None,
            // One name while the other is waited for.
            Err(Error::Lost { .. }) if both => None,
            Err(error) => panic!("{error}"),
        }
    }

    async fn work(&mut self, guards: &[Guard]) {
        for _ in 0..self.random.u32(0..6) {
            self.referee.look();
            sleep(MS * self.random.u32(0..1500)).await;
            if self.random.u32(0..8) == 0 {
                // A process that is stopped: no timer of it runs, but time does.
                tokio::time::advance(self.ttl * self.random.u32(0..3) / 2).await;
            }
            self.referee.look();
            if guards.iter().any(|guard| guard.check().is_err()) {
                return;
            }
            for guard in guards {
                if let Ok(again) = guard.reenter() {
                    assert_eq!(again.token(), guard.token());
                }
            }
            if self.random.u32(0..4) == 0 {
                self.extend(&guards[0]).await;
            }
        }
    }

    /// Makes a writer a reader, and works on.
    async fn downgrade(&mut self, believer: Believer) -> Option<Believer> {
        let guard = match believer.end() {
            Held::One(guard) if mode(&guard) == Mode::Write => guard,
            held => return Some(self.referee.believes(held)),
        };
        let token = guard.token();
        match guard.downgrade().await {
            Ok(guard) => {
                assert_eq!(guard.token(), token);
                let reader = self.referee.believes(Held::One(guard));
                self.work(reader.guards()).await;
                Some(reader)
            }
            Err(Error::Lost { .. } | Error::Backend(_)) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Two extensions at once, one of which may be cancelled. A guard whose lease is renewed refuses.
    async fn extend(&mut self, guard: &Guard) {
        let first = self.ttl * self.random.u32(1..5);
        let second = self.ttl * self.random.u32(1..5);
        let limit = MS * self.random.u32(1..3000);
        let both = async { tokio::join!(guard.extend(first), guard.extend(second)) };
        let Ok((first, second)) = timeout(limit, both).await else {
            return;
        };
        for answer in [first, second] {
            match answer {
                Ok(())
                | Err(Error::Lost { .. } | Error::Backend(_) | Error::InvalidOption { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn end(&mut self, held: Held) {
        let released = match (self.random.u32(0..8), held) {
            (0, Held::One(guard)) => return guard.leak(),
            (0..4, held) => return drop(held),
            (_, Held::One(guard)) => guard.release().await,
            (_, Held::Both(guard)) => guard.release().await,
        };
        match released {
            Ok(()) | Err(Error::Lost { .. } | Error::Backend(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// `None` if it takes longer.
async fn within<T>(
    limit: Duration,
    acquire: impl Future<Output = lockkit_core::Result<T>>,
) -> lockkit_core::Result<Option<T>> {
    match timeout(limit, acquire).await {
        Ok(answer) => answer.map(Some),
        Err(_) => Ok(None),
    }
}
