//! One server, and a client for each way in which a client waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use conformance_tests::servers::RedisServer;
use conformance_tests::task::{Task, spawn, until};
use conformance_tests::{Outcome, ensure};
use lockkit_core::{Lease, Lock, LockClient, PollRange, Queueing};
use lockkit_redis::{Protocol, RedisStore, RedisStoreBuilder};

/// The lease of the tests in which one ends.
pub(crate) const TTL: Duration = Duration::from_millis(1500);
/// The lease of those in which none may end.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The longest time between two rechecks of a waiter.
pub(crate) const RECHECK: Duration = Duration::from_millis(500);

/// How clients wait for the lock.
pub(crate) const WAYS: [&str; 4] = ["fifo", "resp2", "barging", "poll"];

/// A connection that falls silent is given up soon.
pub(crate) fn store(way: &str, port: u16) -> RedisStoreBuilder {
    let store = RedisStore::builder()
        .tcp("127.0.0.1", port)
        .recheck(RECHECK)
        .response_timeout(Duration::from_millis(500));
    let poll = PollRange::new(Duration::from_millis(5), Duration::from_millis(100));
    match way {
        "resp2" => store.protocol(Protocol::Resp2),
        "barging" => store.queueing(Queueing::Barging),
        "poll" => store.poll(poll),
        _ => store,
    }
}

/// A client that gives a request the usual time.
pub(crate) async fn client_at(way: &str, port: u16, ttl: Duration) -> Outcome<LockClient> {
    let store = store(way, port).response_timeout(Duration::from_secs(2));
    client_of(store.connect().await?, ttl)
}

pub(crate) fn client_of(store: RedisStore, ttl: Duration) -> Outcome<LockClient> {
    Ok(LockClient::builder(store)
        .lease(Lease::renewed(ttl))
        .build()?)
}

/// A client that soon gives a request up, for tests in which a connection or a server falls silent.
pub(crate) async fn impatient_at(way: &str, port: u16, ttl: Duration) -> Outcome<LockClient> {
    let client = LockClient::builder(store(way, port).connect().await?).lease(Lease::renewed(ttl));
    Ok(client.timeout(Duration::from_millis(400)).build()?)
}

/// The same lock in `count` clients.
pub(crate) async fn locks(
    server: &RedisServer,
    way: &str,
    ttl: Duration,
    count: usize,
) -> Outcome<Vec<Lock>> {
    let mut locks = Vec::new();
    for _ in 0..count {
        let client = client_at(way, server.port(), ttl).await?;
        locks.push(client.lock(format!("jobs/{way}"))?);
    }
    Ok(locks)
}

/// No hold and no place in a queue is left. Counters stay, and for some time the refusals of tickets that
/// were given up.
pub(crate) async fn only_tokens_left(server: &RedisServer) -> Outcome {
    until("nothing is left but tokens", async || {
        for key in server.run::<Vec<String>>(&["KEYS", "*"]).await? {
            if key.starts_with("redisson_lock_token:") {
                continue;
            }
            let left: i64 = server.run(&["PTTL", &key]).await?;
            let ends = left > 0 && left <= i64::try_from(LONG.as_millis())?;
            if !(key.starts_with("lockkit_gone") && ends) {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await
}

/// What only one may be in at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section(Arc<AtomicBool>);

impl Section {
    /// Takes the lock, and checks that no other client is inside.
    async fn take_turn(&self, lock: &Lock) -> Outcome {
        let guard = lock.acquire().await?;
        let alone = !self.0.swap(true, Ordering::SeqCst);
        ensure(alone, "two hold the lock at once")?;
        tokio::task::yield_now().await;
        guard.check()?;
        self.0.store(false, Ordering::SeqCst);
        guard.release().await?;
        Ok(())
    }

    /// All take so many turns, at once. Returns when all have had theirs.
    pub(crate) async fn share(&self, locks: &[Lock], turns: u32) -> Outcome {
        let users = locks.iter().map(|lock| {
            let (section, lock) = (self.clone(), lock.clone());
            spawn(async move {
                for _ in 0..turns {
                    section.take_turn(&lock).await?;
                }
                Outcome::Ok(())
            })
        });
        for user in users.collect::<Vec<_>>() {
            user.soon().await??;
        }
        Ok(())
    }
}

/// Clients that take turns until they are stopped.
pub(crate) struct Turns {
    taken: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
    users: Vec<Task<Outcome>>,
}

impl Turns {
    pub(crate) fn begin(locks: impl IntoIterator<Item = Lock>) -> Self {
        let section = Section::default();
        let (taken, stopped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let user = |lock: Lock| {
            let (section, taken) = (section.clone(), Arc::clone(&taken));
            let stopped = Arc::clone(&stopped);
            spawn(async move {
                let mut turn = Ok(());
                while turn.is_ok() && !stopped.load(Ordering::Relaxed) {
                    turn = section.take_turn(&lock).await;
                    taken.fetch_add(1, Ordering::Relaxed);
                }
                // One that fails stops the others, so that it is the failure that is reported.
                stopped.store(true, Ordering::Relaxed);
                turn
            })
        };
        let users = locks.into_iter().map(user).collect();
        Self {
            taken,
            stopped,
            users,
        }
    }

    /// Waits for the end of a turn that begins from now on: that of each client may have begun before.
    pub(crate) async fn another(&self) -> Outcome {
        let enough = self.taken.load(Ordering::Relaxed) + self.users.len();
        until("another turn", async || {
            let stopped = self.stopped.load(Ordering::Relaxed);
            Ok(stopped || self.taken.load(Ordering::Relaxed) > enough)
        })
        .await
    }

    /// Lets all finish their turns.
    pub(crate) async fn end(self) -> Outcome {
        self.stopped.store(true, Ordering::Relaxed);
        for user in self.users {
            user.soon().await??;
        }
        Ok(())
    }
}

/// How long after each promotion a lock could be used again: soon enough each time.
pub(crate) fn usable_soon(mut times: Vec<Duration>) -> Outcome {
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let worst = times.last().copied().unwrap_or_default();
    let failovers = times.len();
    println!("usable after a promotion: median {median:?}, worst {worst:?} of {failovers}");
    ensure(worst <= Duration::from_millis(1500), format!("{worst:?}"))
}

/// What nine of ten have taken at most.
pub(crate) fn longest_of_most(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() * 9 / 10).copied().unwrap_or_default()
}
