//! Other locks on Redis, in the same run.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::figures::bound;
use conformance_tests::servers::RedisServer;
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::Lock;
use rslock::LockManager;

use crate::solo::client_at;
use conformance_tests::contention::{Contender, HandOffs, SPAN, contend};

const COUNT: usize = 8;
const TTL: Duration = Duration::from_secs(30);

/// One client of a lock, and its number.
struct One<L> {
    lock: L,
    number: usize,
    seen: Arc<HandOffs>,
}

impl Contender for One<Lock> {
    async fn turn(&mut self) -> Outcome {
        let guard = self.lock.acquire().await?;
        self.seen.note(self.number);
        Ok(guard.release().await?)
    }
}

impl Contender for One<LockManager> {
    async fn turn(&mut self) -> Outcome {
        let taken = self.lock.acquire(b"crowd of rslock", TTL).await;
        let guard = taken.map_err(|error| Failure::new(error.to_string()))?;
        self.seen.note(self.number);
        guard.release().await;
        Ok(())
    }
}

pub(crate) async fn eight_hand_over_faster_than_with_rslock() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let (seen_here, seen_there) = (Arc::<HandOffs>::default(), Arc::<HandOffs>::default());
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for number in 1..=COUNT {
        ours.push(One {
            lock: client_at(server.port()).await?.lock("crowd")?,
            number,
            seen: Arc::clone(&seen_here),
        });
        theirs.push(One {
            lock: LockManager::new(vec![server.url()]),
            number,
            seen: Arc::clone(&seen_there),
        });
    }
    let ours = contend(ours, SPAN).await?;
    let theirs = contend(theirs, SPAN).await?;
    let (rate, least) = (seen_here.per_second(&ours), seen_there.per_second(&theirs));
    let ratio = rate / least;
    println!(
        "eight, loopback: {rate:.0} hand-offs/s, Jain {:.3}; rslock 0.10: {least:.0} hand-offs/s, \
         {:.0} turns/s, Jain {:.3}; ratio {ratio:.0}",
        ours.fairness(),
        theirs.per_second(),
        theirs.fairness(),
    );
    ensure(ratio >= bound(100.0, 5.0), format!("ratio {ratio:.0}"))
}
