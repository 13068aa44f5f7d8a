//! Many clients that want one lock.

use conformance_tests::figures::{bound, median, slow_link};
use conformance_tests::{Outcome, ensure};

use crate::solo::{client_at, cluster, trip};
use conformance_tests::contention::{SPAN, compare, contend};
use lockkit_core::Lock;
use tokio::time::Instant;

pub(crate) async fn eight_hand_over_in_one_round_trip() -> Outcome {
    let cluster = cluster().await?;
    let (mut locks, mut links) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let link = slow_link(cluster.ports()[0]).await?;
        locks.push(client_at(link.addr().port()).await?.lock("crowd")?);
        links.push(link);
    }
    for lock in &locks {
        lock.acquire().await?.release().await?;
    }
    let port = links[0].addr().port();
    let before = trip(port).await?;
    let turns = contend(locks, SPAN).await?;
    let (rate, fair) = (turns.per_second(), turns.fairness());
    // On a busy machine a round trip takes longer than its delay.
    let trip = (before + trip(port).await?) / 2;
    let trips = turns.trips_each(trip);
    println!(
        "eight, {trip:?} away: {rate:.1} hand-offs/s, {trips:.2} round trips each, Jain {fair:.3}"
    );
    // 85 per second, if a round trip takes 10 ms.
    ensure(
        trips <= bound(1.176, 1.9),
        format!("{trips:.2} round trips a hand-off"),
    )?;
    ensure(fair >= 0.98, format!("Jain {fair:.3}"))
}

pub(crate) async fn eight_and_sixty_four_on_loopback() -> Outcome {
    let cluster = cluster().await?;
    let crowd = async |count: usize| -> Outcome<Vec<Lock>> {
        let mut locks = Vec::new();
        for _ in 0..count {
            let client = client_at(cluster.ports()[0]).await?;
            let lock = client.lock(format!("crowd/{count}"))?;
            // The first acquire creates its session.
            lock.acquire().await?.release().await?;
            locks.push(lock);
        }
        Ok(locks)
    };
    let (few, many) = compare(crowd(8).await?, crowd(64).await?).await?;
    for (count, turns) in [(8, &few), (64, &many)] {
        let (rate, fair) = (turns.per_second(), turns.fairness());
        println!("{count}, loopback: {rate:.0} hand-offs/s, Jain {fair:.3}");
        ensure(fair >= 0.9, format!("Jain {fair:.3}"))?;
    }
    let kept = many.per_second() / few.per_second();
    println!("64 have {kept:.2} of the rate of 8");
    let least = bound(0.65, 0.3);
    ensure(kept >= least, format!("64 have {kept:.2} of the rate of 8"))
}

/// The server keeps deleted keys until its history is compacted, and each listing of a lock scans them.
pub(crate) async fn often_taken_lock_stays_fast() -> Outcome {
    const CYCLES: u32 = 100;
    const OFTEN: u32 = 30;
    let cluster = cluster().await?;
    let client = client_at(cluster.ports()[0]).await?;
    let (old, lock) = (client.lock("often")?, client.lock("seldom")?);
    for _ in 0..CYCLES * OFTEN {
        old.acquire().await?.release().await?;
    }
    let (mut often, mut seldom) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        for (lock, times) in [(&old, &mut often), (&lock, &mut seldom)] {
            let start = Instant::now();
            for _ in 0..CYCLES {
                lock.acquire().await?.release().await?;
            }
            times.push(start.elapsed() / CYCLES);
        }
    }
    let (often, seldom) = (median(often)?, median(seldom)?);
    println!(
        "taken {} times before: {often:?} a cycle, otherwise {seldom:?}",
        CYCLES * OFTEN
    );
    ensure(
        often <= seldom.mul_f64(1.4),
        format!("{often:?}, {seldom:?}"),
    )
}
