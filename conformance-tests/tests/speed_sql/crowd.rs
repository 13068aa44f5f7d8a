//! Many who want a lock.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::figures::{DELAY, OPTIMISED, bound, median, slow_link};
use conformance_tests::task::{acquire, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::{Lock, LockClient, PollRange};
use lockkit_sql::PostgresStore;
use tokio::time::{Instant, sleep};

use crate::bare::Polled;
use crate::solo::trip;
use crate::world::{Database as _, For, Postgres, options};
use conformance_tests::contention::{Contender, HandOffs, SPAN, contend, float};

pub(crate) async fn eight_through_the_proxy_hand_over_in_two_trips() -> Outcome {
    let server = Postgres::start(For::Speed).await?;
    for pin in [false, true] {
        let (mut ours, mut links) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            let link = slow_link(server.port()).await?;
            let client = Postgres::client_at(link.addr().port(), pin).await?;
            ours.push(client.lock("crowd")?);
            links.push(link);
        }
        // Their connections, and those that listen for wake-ups.
        contend(ours.clone(), Duration::from_secs(1)).await?;
        let port = links[0].addr().port();
        let before = trip(server.connect(port).await?).await?;
        let turns = contend(ours, SPAN).await?;
        let (rate, fair) = (turns.per_second(), turns.fairness());
        // On a busy machine the way is longer than its delay.
        let trip = (before + trip(server.connect(port).await?).await?) / 2;
        let trips = turns.trips_each(trip);
        let what = if pin { "pins" } else { "leases" };
        println!(
            "eight, {trip:?} away, {what}: {rate:.1} hand-offs/s, {trips:.2} round trips each, Jain {fair:.3}"
        );
        // 42 in a second, if a trip takes 10 ms.
        let most = bound(2.38, 2.9);
        ensure(
            trips <= most,
            format!("{what}: {trips:.2} round trips a hand-off"),
        )?;
    }
    Ok(())
}

/// One client of a lock, and its number.
#[derive(Clone)]
struct One {
    lock: Lock,
    number: usize,
    seen: Arc<HandOffs>,
}

impl Contender for One {
    async fn turn(&mut self) -> Outcome {
        let guard = self.lock.acquire().await?;
        self.seen.note(self.number);
        Ok(guard.release().await?)
    }
}

pub(crate) async fn eight_on_loopback_are_faster_than_a_polled_row() -> Outcome {
    let server = Postgres::start(For::Speed).await?;
    Polled::ready(&server).await?;
    let (seen_here, seen_there) = (Arc::<HandOffs>::default(), Arc::<HandOffs>::default());
    let (mut ours, mut polled, mut first) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=8 {
        let client = Postgres::client_at(server.port(), false).await?;
        let lock = client.lock("crowd")?;
        first.push(lock.clone());
        let seen = Arc::clone(&seen_here);
        ours.push(One { lock, number, seen });
        polled.push(Polled::connect(server.port(), number, &seen_there).await?);
    }
    contend(first, Duration::from_secs(1)).await?;
    // Each transaction that writes has a number.
    let transactions = async || server.number("select txid_current()").await;
    let before = transactions().await?;
    let ours = contend(ours, SPAN).await?;
    let writes = float(transactions().await? - before) / float(ours.total());
    let polled = contend(polled, SPAN).await?;
    let (rate, least) = (seen_here.per_second(&ours), seen_there.per_second(&polled));
    let ratio = rate / least;
    println!(
        "eight, loopback: {rate:.0} hand-offs/s, {:.0} turns/s, {writes:.2} writes each, Jain {:.3}; \
         a row polled every millisecond: {least:.0} hand-offs/s, {:.0} turns/s, Jain {:.3}; ratio \
         {ratio:.2}",
        ours.per_second(),
        ours.fairness(),
        polled.per_second(),
        polled.fairness(),
    );
    ensure(writes <= 2.5, format!("{writes:.2} writes a turn"))?;
    if !OPTIMISED {
        // And ours do more than a poll.
        println!("the ratio is not checked: without optimisation the clients are what takes long");
        return Ok(());
    }
    // A hand-off in turn is a commit and a message each, which a poll by chance is not.
    ensure(ratio >= 1.15, format!("ratio {ratio:.2}"))
}

/// How long after a release the waiter has the lock, ten times.
async fn served(mine: &LockClient, other: &LockClient, name: &str) -> Outcome<Vec<Duration>> {
    let mut spans = Vec::new();
    for _ in 0..10 {
        let guard = other.lock(name)?.acquire().await?;
        let waiter = acquire(&mine.lock(name)?);
        sleep(Duration::from_millis(150)).await;
        guard.release().await?;
        let released = Instant::now();
        let next = within(Duration::from_secs(10), waiter.soon()).await???;
        spans.push(released.elapsed());
        next.release().await?;
    }
    Ok(spans)
}

pub(crate) async fn waiter_is_served_at_once() -> Outcome {
    let server = Postgres::start(For::Speed).await?;
    let link = slow_link(server.port()).await?;
    let mine = Postgres::client_at(link.addr().port(), false).await?;
    let other = Postgres::client_at(server.port(), false).await?;
    let took = median(served(&mine, &other, "jobs").await?)?;
    println!("a waiter 10 ms away is served {took:?} after the release");
    // The notification comes half a round trip after it.
    let limit = DELAY * 3 + Duration::from_millis(20);
    ensure(took <= limit, format!("served after {took:?}"))
}

pub(crate) async fn waiter_whose_wake_up_is_lost_is_served_by_its_next_poll() -> Outcome {
    const LONGEST: Duration = Duration::from_millis(400);
    let server = Postgres::start(For::Speed).await?;
    // Stands before that of the server.
    let deaf = "create schema deaf; create function deaf.pg_notify(text, text) returns void \
                language sql as 'select'; alter role postgres set search_path = deaf, public, pg_catalog";
    let client = async || -> Outcome<LockClient> {
        let pauses = PollRange::new(Duration::from_millis(50), LONGEST);
        let store = PostgresStore::builder(options(server.port())).poll(pauses);
        Ok(LockClient::new(store.connect().await?)?)
    };
    let mine = client().await?;
    server.run(deaf).await?;
    let other = client().await?;
    let spans = served(&mine, &other, "jobs").await?;
    let most = spans.into_iter().max().unwrap_or_default();
    println!("without wake-ups it is served {most:?} after the release at the latest");
    let limit = LONGEST + Duration::from_millis(200);
    ensure(most <= limit, format!("served after {most:?}"))
}
