//! Other locks on Redis, in the same run.

use std::time::Duration;

use conformance_tests::servers::RedisServer;
use conformance_tests::{Failure, Outcome, ensure};
use rslock::LockManager;

use crate::bound;
use crate::contention::{Contender, contend};
use crate::solo::client_at;

const SPAN: Duration = Duration::from_secs(4);
const COUNT: usize = 8;
const TTL: Duration = Duration::from_secs(30);

/// One client of rslock.
struct Rslock(LockManager);

impl Contender for Rslock {
    async fn turn(&mut self) -> Outcome {
        let taken = self.0.acquire(b"crowd of rslock", TTL).await;
        let guard = taken.map_err(|error| Failure::new(error.to_string()))?;
        guard.release().await;
        Ok(())
    }
}

pub(crate) async fn eight_hand_over_faster_than_with_rslock() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..COUNT {
        ours.push(client_at(server.port()).await?.lock("crowd")?);
        theirs.push(Rslock(LockManager::new(vec![server.url()])));
    }
    let ours = contend(ours, SPAN).await?;
    let theirs = contend(theirs, SPAN).await?;
    let (rate, least) = (ours.per_second(), theirs.per_second());
    let ratio = rate / least;
    println!(
        "eight, loopback: {rate:.0} hand-offs/s, rslock 0.10 {least:.0}, ratio {ratio:.0}; Jain \
         {:.3} and {:.3}",
        ours.fairness(),
        theirs.fairness()
    );
    ensure(ratio >= bound(100.0, 20.0), format!("ratio {ratio:.0}"))
}
