//! Many requests of one client that are under way while their slot moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use conformance_tests::servers::RedisCluster;
use conformance_tests::task::{Task, spawn, until};
use conformance_tests::{Outcome, TestSuite, ensure};
use lockkit_core::Lock;
use tokio::time::sleep;

use crate::cluster::{NAME, TTL, WAYS, client};
use crate::world::LONG;

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite.test(sixty_four_requests_keep_their_replies_while_their_slot_moves)
}

const LOCKS: u64 = 64;
/// The tokens of the first lock are larger than this one, which is later than any clock.
const FIRST: u64 = 4_000_000_000_000_000;
/// How far apart the tokens of two locks are.
const APART: u64 = 1_000_000_000;

/// A lock whose tokens no other lock has, and what one client at a time does under it.
#[derive(Debug)]
struct Numbered {
    name: String,
    first: u64,
    last: AtomicU64,
    held: AtomicBool,
    turns: AtomicU64,
}

impl Numbered {
    async fn new(cluster: &RedisCluster, number: u64) -> Outcome<Arc<Self>> {
        let (name, first) = (format!("{{{NAME}}}/{number}"), FIRST + number * APART);
        let master = &cluster.nodes()[cluster.master_of(NAME).await?];
        let key = format!("redisson_lock_token:{name}");
        master.ask(&["SET", &key, &first.to_string()]).await?;
        Ok(Arc::new(Self {
            name,
            first,
            last: AtomicU64::new(first),
            held: AtomicBool::new(false),
            turns: AtomicU64::new(0),
        }))
    }

    async fn take_turn(&self, lock: &Lock) -> Outcome {
        let guard = lock.acquire().await?;
        let alone = !self.held.swap(true, Ordering::SeqCst);
        ensure(alone, format!("two hold {}", self.name))?;
        let token = guard.token().get();
        let last = self.last.swap(token, Ordering::SeqCst);
        let own = token > last && token < self.first + APART;
        ensure(own, format!("{}: {token} after {last}", self.name))?;
        tokio::task::yield_now().await;
        guard.check()?;
        self.held.store(false, Ordering::SeqCst);
        guard.release().await?;
        self.turns.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// All take turns at once, until they are told to stop.
fn begin(stopped: &Arc<AtomicBool>, all: Vec<(Arc<Numbered>, Lock)>) -> Vec<Task<Outcome>> {
    let users = all.into_iter().map(|(numbered, lock)| {
        let stopped = Arc::clone(stopped);
        spawn(async move {
            let mut turn = Ok(());
            while turn.is_ok() && !stopped.load(Ordering::SeqCst) {
                turn = numbered.take_turn(&lock).await;
            }
            // One that fails stops the others, so that it is the failure that is reported.
            stopped.store(true, Ordering::SeqCst);
            turn
        })
    });
    users.collect()
}

/// Some locks, tokens and queues are at the old master for a while, others already at the new one.
async fn move_slowly(cluster: &RedisCluster, slot: u16, way_of_it: [usize; 2]) -> Outcome {
    const PAUSE: Duration = Duration::from_millis(50);
    cluster.begin_move(slot, way_of_it).await?;
    for _ in 0..3 {
        sleep(PAUSE).await;
        let slot = slot.to_string();
        let some = ["CLUSTER", "GETKEYSINSLOT", &slot, "24"];
        let some = cluster.nodes()[way_of_it[0]].ask(&some).await?;
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        cluster.move_keys(&some, way_of_it).await?;
    }
    sleep(PAUSE).await;
    cluster.end_move(slot, way_of_it).await
}

/// The token of a grant says which lock the reply was about.
async fn sixty_four_requests_keep_their_replies_while_their_slot_moves() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let mut locks = Vec::new();
    for number in 0..LOCKS {
        locks.push(Numbered::new(&cluster, number).await?);
    }
    let (mut all, mut kept) = (Vec::new(), Vec::new());
    for way in WAYS {
        let client = client(&cluster, way, TTL).await?;
        let lock = client.lock(format!("kept/{way}/{{{NAME}}}"))?;
        kept.push(lock.acquire().await?);
        for numbered in &locks {
            let lock = client
                .lock(numbered.name.as_str())?
                .with_lease(lockkit_core::Lease::renewed(LONG))?;
            all.push((Arc::clone(numbered), lock));
        }
    }
    let stopped = Arc::default();
    let users = begin(&stopped, all);
    let slot = cluster.slot_of(NAME).await?;
    let mut from = cluster.master_of(NAME).await?;
    for _ in 0..6 {
        let way_of_it = [from, (from + 1) % 3];
        move_slowly(&cluster, slot, way_of_it).await?;
        from = way_of_it[1];
        let before: Vec<u64> = locks
            .iter()
            .map(|it| it.turns.load(Ordering::SeqCst))
            .collect();
        // Each client has had its turn that began before, or another one.
        let users = u64::try_from(WAYS.len())?;
        until("all are served", async || {
            let mut all = locks.iter().zip(&before);
            let served = all.all(|(it, before)| it.turns.load(Ordering::SeqCst) > before + users);
            Ok(served || stopped.load(Ordering::SeqCst))
        })
        .await?;
    }
    stopped.store(true, Ordering::SeqCst);
    for user in users {
        user.soon().await??;
    }
    for guard in kept {
        guard.check()?;
        guard.release().await?;
    }
    Ok(())
}
