//! Many clients, one lock.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::figures::{bound, share_of_a_core, slow_link};
use conformance_tests::foreign::Curator;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{Lock, LockClient};
use lockkit_zk::ZkStore;
use tokio::time::sleep;

use crate::solo::{client_at, start, trip};
use conformance_tests::contention::{SPAN, compare, contend, float};

async fn locks(port: u16, count: usize, name: &str) -> Outcome<Vec<Lock>> {
    let mut locks = Vec::new();
    for _ in 0..count {
        locks.push(client_at(port).await?.lock(name)?);
    }
    Ok(locks)
}

pub(crate) async fn eight_through_the_proxy_hand_over_in_one_trip() -> Outcome {
    let server = start().await?;
    let (mut links, mut eight) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        let link = slow_link(server.port()).await?;
        eight.push(client_at(link.addr().port()).await?.lock("crowd")?);
        links.push(link);
    }
    // The first turns make the parent and the sessions' first requests.
    contend(eight.clone(), Duration::from_secs(1)).await?;
    let port = links[0].addr().port();
    let before = trip(port).await?;
    let turns = contend(eight, SPAN).await?;
    let (rate, fair) = (turns.per_second(), turns.fairness());
    // On a busy machine the way is longer than its delay.
    let trip = (before + trip(port).await?) / 2;
    let trips = turns.trips_each(trip);
    println!(
        "eight, {trip:?} away: {rate:.1} hand-offs/s, {trips:.2} round trips each, Jain {fair:.3}"
    );
    // 80 in a second, if a trip takes 10 ms.
    ensure(
        trips <= bound(1.25, 1.9),
        format!("{trips:.2} round trips a hand-off"),
    )?;
    ensure(fair >= 0.99, format!("fairness {fair:.3}"))
}

pub(crate) async fn eight_and_sixty_four_are_served_equally_fast() -> Outcome {
    let server = start().await?;
    let eight = locks(server.port(), 8, "eight").await?;
    let many = locks(server.port(), 64, "sixty-four").await?;
    let (eight, many) = compare(eight, many).await?;
    let ratio = many.per_second() / eight.per_second();
    let (few, all) = (eight.per_second(), many.per_second());
    let (total, fair) = (many.total(), many.fairness());
    println!(
        "loopback: eight {few:.0}/s, sixty-four {all:.0}/s, ratio {ratio:.2}, fairness {fair:.3} of {total}"
    );
    ensure(ratio >= bound(0.7, 0.5), format!("ratio {ratio:.2}"))?;
    ensure(fair >= 0.97, format!("fairness {fair:.3}"))
}

pub(crate) async fn eight_hand_over_faster_than_curator() -> Outcome {
    let server = start().await?;
    let mut java = Curator::start(server.port(), Duration::from_secs(30)).await?;
    let eight = locks(server.port(), 8, "ours").await?;
    // Both warm up.
    contend(eight.clone(), Duration::from_secs(1)).await?;
    java.ask("main contend /theirs 8 1000").await?;
    let (mut ours, mut theirs) = (0, 0);
    let mut spent = Duration::ZERO;
    for _ in 0..3 {
        let turns = contend(eight.clone(), Duration::from_secs(2)).await?;
        ours += turns.total();
        spent += turns.span();
        let answer = within(
            Duration::from_secs(30),
            java.ask("main contend /theirs 8 2000"),
        )
        .await??;
        let turns = answer
            .strip_prefix("turns ")
            .and_then(|turns| turns.parse::<u64>().ok());
        theirs += turns.ok_or_else(|| Failure::new(answer))?;
    }
    let (ours, theirs) = (float(ours) / spent.as_secs_f64(), float(theirs) / 6.0);
    let ratio = ours / theirs;
    println!("eight, loopback: ours {ours:.0}/s, Curator {theirs:.0}/s, ratio {ratio:.2}");
    ensure(ratio >= bound(1.2, 0.3), format!("ratio {ratio:.2}"))
}

/// While no client releases, waiters cost the server next to nothing.
pub(crate) async fn two_thousand_waiters_cost_the_server_little() -> Outcome {
    const WAITERS: usize = 2000;
    const EACH: usize = 40;
    const SPAN: Duration = Duration::from_secs(20);
    let server = start().await?;
    let bare = server.client().await?;
    let _held = client_at(server.port())
        .await?
        .lock("many")?
        .acquire()
        .await?;
    let mut waiters = Vec::new();
    // Each session costs the server its pings, whether it waits or not: here are few of them.
    for _ in 0..WAITERS / EACH {
        let store = ZkStore::builder().host("127.0.0.1", server.port());
        let store = Arc::new(store.connect().await?);
        for _ in 0..EACH {
            let client = LockClient::builder_arc(Arc::clone(&store) as _).build()?;
            waiters.push(acquire(&client.lock("many")?));
        }
    }
    until("all stand in the queue", async || {
        Ok(bare.list_children("/locks/many").await?.len() > WAITERS)
    })
    .await?;
    // The last of them have opened their watches.
    sleep(Duration::from_secs(3)).await;
    let share = share_of_a_core(server.process(), SPAN).await?;
    println!(
        "{WAITERS} waiters: the server is busy for {:.1} % of a core",
        share * 100.0
    );
    ensure(share <= 0.10, format!("{share:.3} of a core"))
}
