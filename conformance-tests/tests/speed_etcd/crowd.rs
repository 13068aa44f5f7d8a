//! Many who want a lock.

use std::time::Duration;

use conformance_tests::servers::EtcdCluster;
use conformance_tests::{Outcome, ensure};

use crate::bound;
use crate::solo::{client_at, slow_way};
use conformance_tests::contention::contend;

const SPAN: Duration = Duration::from_secs(4);

pub(crate) async fn eight_through_the_proxy_hand_over_in_one_trip() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let (mut locks, mut ways) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let way = slow_way(&cluster).await?;
        locks.push(client_at(way.addr().port()).await?.lock("crowd")?);
        ways.push(way);
    }
    for lock in &locks {
        lock.acquire().await?.release().await?;
    }
    let turns = contend(locks, SPAN).await?;
    let (rate, fair) = (turns.per_second(), turns.fairness());
    println!("eight, 10 ms away: {rate:.1} hand-offs/s, Jain {fair:.3}");
    ensure(rate >= bound(70.0, 50.0), format!("{rate:.1} hand-offs/s"))?;
    ensure(fair >= 0.98, format!("Jain {fair:.3}"))
}

pub(crate) async fn eight_and_sixty_four_on_loopback() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut rates = Vec::new();
    for count in [8, 64] {
        let mut locks = Vec::new();
        for _ in 0..count {
            locks.push(client_at(cluster.ports()[0]).await?.lock("crowd")?);
        }
        let turns = contend(locks, SPAN).await?;
        let (rate, fair) = (turns.per_second(), turns.fairness());
        println!("{count}, loopback: {rate:.0} hand-offs/s, Jain {fair:.3}");
        ensure(fair >= 0.9, format!("Jain {fair:.3}"))?;
        rates.push(rate);
    }
    let kept = rates[1] / rates[0];
    println!("64 have {kept:.2} of the rate of 8");
    ensure(kept >= 0.2, format!("64 have {kept:.2} of the rate of 8"))
}
