//! How fast readers, writers, permits and several names are behind slow links: the same tests for all stores.

#![expect(clippy::print_stdout, reason = "the figures are for people")]
#![expect(clippy::future_not_send, reason = "each test has a runtime of its own")]

use std::time::Duration;

use lockkit_core::{Guard, Lock, LockClient, MultiLock};
use tokio::time::{Instant, sleep};

use crate::contention::{Contender, SPAN, compare, contend, float};
use crate::failure::{Failure, Outcome, ensure};
use crate::figures::{OPTIMISED, bound, median, ratio, slow_link};
use crate::proxy::Proxy;
use crate::task::{Task, acquire, spawn, until};
use crate::test_suite::TestSuite;

/// A kind of server, and the bounds of its speed, which are round trips unless they say otherwise.
pub trait Measured: Sized + 'static {
    /// An acquire of a free lock.
    const ACQUIRE: u32;
    /// A cycle of one client.
    const ALONE: f64;
    /// The first to the last grant of 64 readers of one client.
    const READERS_OF_ONE: f64;
    /// A release of a writer and the grants of all readers that wait: half a round trip to the server, half a
    /// round trip back, and what 64 grants take.
    const ADMISSION: f64;
    /// The median of what a writer waits among readers, beside the time for which they hold: its request and the
    /// news of its grant are a round trip, and so are those of the last reader that was granted before.
    const WRITER: f64;
    /// A hand-off between writers.
    const HAND_OFF: f64;
    /// The least rate of readers, as a part of that of readers who never wait.
    const READERS: f64;
    /// The least rate of 16 clients that want one of four permits, as a multiple of that of exclusive clients.
    const PERMITS: f64;
    /// The least rate of 64 clients that want permits, as a part of that of 16.
    const CROWD: f64;
    /// An acquire and a release of four free names, as a multiple of those of one.
    const NAMES: f64;

    /// Starts a server.
    fn start() -> impl Future<Output = Outcome<Self>>;

    /// Its port.
    fn port(&self) -> u16;

    /// A client of the server behind this port.
    fn client_at(port: u16) -> impl Future<Output = Outcome<LockClient>>;

    /// How long a round trip takes.
    fn trip(&self, port: u16) -> impl Future<Output = Outcome<Duration>>;
}

/// Adds the tests of a store. Only the number of round trips does not need an optimized build.
#[must_use]
pub fn add<M: Measured>(suite: TestSuite) -> TestSuite {
    let slow = (!OPTIMISED).then(|| "it measures an optimized build: add `--release`".to_owned());
    suite
        .test(modes_alone_cost_as_many_trips_as_exclusive::<M>)
        .needing(slow)
        .test(readers_do_not_wait_for_readers::<M>)
        .test(readers_of_one_client_are_let_in_at_once::<M>)
        .test(waiting_readers_are_let_in_together::<M>)
        .test(writer_waits_for_those_who_read_alone::<M>)
        .test(writers_hand_over_as_fast_as_exclusive::<M>)
        .test(four_permits_are_four_times_as_fast::<M>)
        .test(four_names_cost_as_long_as_one::<M>)
}

/// Clients of one server, each behind a slow link of its own.
struct Far<M> {
    server: M,
    clients: Vec<LockClient>,
    links: Vec<Proxy>,
}

impl<M: Measured> Far<M> {
    async fn new(count: usize) -> Outcome<Self> {
        let (server, mut clients, mut links) = (M::start().await?, Vec::new(), Vec::new());
        for _ in 0..count {
            let link = slow_link(server.port()).await?;
            let client = M::client_at(link.addr().port()).await?;
            // Its session, and the text of the scripts.
            for lock in locks_of(&client, "first")? {
                lock.acquire().await?.release().await?;
            }
            clients.push(client);
            links.push(link);
        }
        Ok(Self {
            server,
            clients,
            links,
        })
    }

    /// On a busy machine a round trip takes longer than its delay.
    async fn trip(&self) -> Outcome<Duration> {
        self.server.trip(self.links[0].addr().port()).await
    }

    fn passed(&self) -> u64 {
        self.links
            .iter()
            .map(|link| link.counts().round_trips)
            .sum()
    }

    /// One lock of each of the first `count` clients.
    fn each(
        &self,
        count: usize,
        of: impl Fn(&LockClient) -> lockkit_core::Result<Lock>,
    ) -> Outcome<Vec<Lock>> {
        let locks = self.clients.iter().take(count).map(of);
        Ok(locks.collect::<lockkit_core::Result<_>>()?)
    }
}

/// A reader, a writer and one of four permits.
fn locks_of(client: &LockClient, name: &str) -> Outcome<[Lock; 3]> {
    let lock = client.rw_lock(name)?;
    Ok([lock.read(), lock.write(), client.semaphore(name, 4)?])
}

/// A contender that holds for a while.
struct Section(Lock, Duration);

impl Contender for Section {
    async fn turn(&mut self) -> Outcome {
        let guard = self.0.acquire().await?;
        sleep(self.1).await;
        Ok(guard.release().await?)
    }
}

/// Alone, every mode costs as many round trips as an exclusive lock.
async fn modes_alone_cost_as_many_trips_as_exclusive<M: Measured>() -> Outcome {
    const CYCLES: u32 = 40;
    let far = Far::<M>::new(1).await?;
    let whole = f64::from(M::ACQUIRE + 1);
    let names = ["read", "write", "permit"];
    for (what, lock) in names.into_iter().zip(locks_of(&far.clients[0], "solo")?) {
        lock.acquire().await?.release().await?;
        let trip = far.trip().await?;
        let (began, before) = (Instant::now(), far.passed());
        let mut cycles = Vec::new();
        for _ in 0..CYCLES {
            let start = Instant::now();
            lock.acquire().await?.release().await?;
            cycles.push(start.elapsed());
        }
        let all = far.passed() - before;
        // Requests that keep a session alive are counted as well, with or without cycles.
        let before = far.passed();
        sleep(began.elapsed()).await;
        let counted = float(all.saturating_sub(far.passed() - before)) / f64::from(CYCLES);
        let trips = ratio(median(cycles)?, trip);
        println!(
            "{what} alone, {trip:?} away: as long as {trips:.2} round trips, {counted:.2} are counted"
        );
        let few = counted <= whole + 0.15;
        ensure(few, format!("{what}: {counted:.2} round trips are counted"))?;
        let most = bound(M::ALONE, M::ALONE * 3.0);
        ensure(trips <= most, format!("{what}: {trips:.2} round trips"))?;
    }
    Ok(())
}

/// Eight clients that read for a round trip each.
async fn readers_do_not_wait_for_readers<M: Measured>() -> Outcome {
    let far = Far::<M>::new(8).await?;
    let before = far.trip().await?;
    let readers = far.each(8, |client| Ok(client.rw_lock("page")?.read()))?;
    let readers = readers.into_iter().map(|lock| Section(lock, before));
    let turns = contend(readers.collect(), SPAN).await?;
    let trip = (before + far.trip().await?) / 2;
    let possible = 8.0 / (f64::from(M::ACQUIRE + 2) * trip.as_secs_f64());
    let (rate, fair) = (turns.per_second(), turns.fairness());
    let part = rate / possible;
    println!(
        "eight readers, {trip:?} away, for a round trip each: {rate:.0}/s, {part:.2} of what is possible, \
         Jain {fair:.3}"
    );
    ensure(
        part >= M::READERS,
        format!("{part:.2} of the possible rate"),
    )
}

/// Acquires in tasks, which note the moment of the grant.
fn noted(locks: impl IntoIterator<Item = Lock>) -> Vec<Task<Outcome<(Instant, Guard)>>> {
    let tasks = locks.into_iter().map(|lock| {
        spawn(async move {
            let guard = lock.acquire().await?;
            Outcome::Ok((Instant::now(), guard))
        })
    });
    tasks.collect()
}

/// The times of the first and the last grant after `start`. All hold at once, and have released afterwards.
async fn granted(
    start: Instant,
    tasks: Vec<Task<Outcome<(Instant, Guard)>>>,
    clients: &[LockClient],
) -> Outcome<(Duration, Duration)> {
    let (mut times, mut guards) = (Vec::new(), Vec::new());
    for task in tasks {
        let (at, guard) = task.soon().await??;
        times.push(at - start);
        guards.push(guard);
    }
    drop(guards);
    for client in clients {
        client.drain().await;
    }
    let ends = times.iter().min().zip(times.iter().max());
    let (first, last) = ends.ok_or_else(|| Failure::new("no grant"))?;
    Ok((*first, *last))
}

/// Sixty-four tasks of one client that read.
async fn readers_of_one_client_are_let_in_at_once<M: Measured>() -> Outcome {
    let far = Far::<M>::new(1).await?;
    let trip = far.trip().await?;
    let lock = far.clients[0].rw_lock("page")?.read();
    let (mut spreads, mut all) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let start = Instant::now();
        let tasks = noted(vec![lock.clone(); 64]);
        let (first, last) = granted(start, tasks, &far.clients).await?;
        spreads.push(last - first);
        all.push(last);
    }
    let (spread, all) = (ratio(median(spreads)?, trip), ratio(median(all)?, trip));
    println!(
        "64 readers of one client, {trip:?} away: {spread:.2} round trips from the first to the last grant, \
         {all:.2} in all"
    );
    ensure(
        spread <= M::READERS_OF_ONE,
        format!("{spread:.2} round trips"),
    )
}

/// Sixty-four readers of eight clients behind a writer.
async fn waiting_readers_are_let_in_together<M: Measured>() -> Outcome {
    let far = Far::<M>::new(9).await?;
    let trip = far.trip().await?;
    let writer = far.clients[8].rw_lock("page")?.write();
    let readers = far.each(8, |client| Ok(client.rw_lock("page")?.read()))?;
    let (mut times, mut requests) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        let held = writer.acquire().await?;
        let tasks = noted(readers.iter().cycle().take(64).cloned());
        until("all readers wait", async || {
            let waiters = writer.inspect().await?.and_then(|state| state.waiters);
            Ok(waiters.is_none_or(|waiters| waiters >= 64))
        })
        .await?;
        // Where the store does not know them, and until each has opened its watch.
        sleep(trip * 20).await;
        let (start, before) = (Instant::now(), far.passed());
        let release = spawn(held.release());
        let mut after = 0;
        let count = async {
            release.soon().await??;
            after = far.passed();
            Outcome::Ok(())
        };
        let (counted, last) = tokio::join!(count, granted(start, tasks, &far.clients));
        counted?;
        times.push(last?.1);
        requests.push(after - before);
    }
    let trips = ratio(median(times)?, trip);
    println!(
        "64 readers of eight clients behind a writer, {trip:?} away: {trips:.2} round trips until all hold, \
         {requests:?} requests"
    );
    ensure(trips <= M::ADMISSION, format!("{trips:.2} round trips"))
}

/// A writer among sixteen readers that acquire again after each release.
async fn writer_waits_for_those_who_read_alone<M: Measured>() -> Outcome {
    let far = Far::<M>::new(17).await?;
    let trip = far.trip().await?;
    let readers = far.each(16, |client| Ok(client.rw_lock("page")?.read()))?;
    let readers = readers.into_iter().map(|lock| Section(lock, trip));
    let readers: Vec<_> = readers.collect();
    let writer = far.clients[16].rw_lock("page")?.write();
    let end = Instant::now() + SPAN;
    let reading = spawn(async move { contend(readers, SPAN).await });
    let mut waits = Vec::new();
    while Instant::now() + trip * 10 < end {
        sleep(trip.mul_f64(2.0 + fastrand::f64() * 2.0)).await;
        let start = Instant::now();
        let guard = acquire(&writer).soon().await??;
        waits.push(start.elapsed());
        guard.release().await?;
    }
    let turns = reading.soon().await??;
    let count = waits.len();
    let longest = ratio(waits.iter().max().copied().unwrap_or_default(), trip) - 1.0;
    let typical = ratio(median(waits)?, trip) - 1.0;
    println!(
        "a writer among 16 readers, {trip:?} away: {typical:.2} round trips beside the time of a reader, at most \
         {longest:.2} of {count} times; {:.0} reads/s",
        turns.per_second()
    );
    let most = M::WRITER;
    ensure(typical <= most, format!("{typical:.2} round trips"))?;
    // What else the machine does delays some of them.
    ensure(longest <= most * 2.0, format!("{longest:.2} round trips"))
}

/// Eight writers, and eight clients of an exclusive lock.
async fn writers_hand_over_as_fast_as_exclusive<M: Measured>() -> Outcome {
    let far = Far::<M>::new(8).await?;
    let before = far.trip().await?;
    let writers = far.each(8, |client| Ok(client.rw_lock("page")?.write()))?;
    let exclusive = far.each(8, |client| client.lock("exclusive"))?;
    let (writers, exclusive) = compare(writers, exclusive).await?;
    let trip = (before + far.trip().await?) / 2;
    let (trips, part) = (
        writers.trips_each(trip),
        writers.per_second() / exclusive.per_second(),
    );
    println!(
        "eight writers, {trip:?} away: {:.1} hand-offs/s, {trips:.2} round trips each, {part:.2} of exclusive",
        writers.per_second()
    );
    ensure(
        trips <= M::HAND_OFF,
        format!("{trips:.2} round trips a hand-off"),
    )?;
    ensure(part >= 0.95, format!("{part:.2} of the exclusive rate"))
}

/// Four permits for sixteen clients and for 64, and an exclusive lock.
async fn four_permits_are_four_times_as_fast<M: Measured>() -> Outcome {
    let far = Far::<M>::new(64).await?;
    let permits = |count, name| far.each(count, move |client| client.semaphore(name, 4));
    let exclusive = far.each(16, |client| client.lock("exclusive"))?;
    let (some, exclusive) = compare(permits(16, "sixteen")?, exclusive).await?;
    let (many, again) = compare(permits(64, "many")?, permits(16, "sixteen")?).await?;
    let times = some.per_second() / exclusive.per_second();
    let kept = many.per_second() / again.per_second();
    println!(
        "four permits, 10 ms away: 16 clients {:.0}/s, {times:.2} times the exclusive hand-offs, Jain {:.3}; 64 \
         clients {:.0}/s, {kept:.2} of that, Jain {:.3}",
        some.per_second(),
        some.fairness(),
        many.per_second(),
        many.fairness()
    );
    ensure(
        times >= M::PERMITS,
        format!("{times:.2} times the exclusive rate"),
    )?;
    ensure(kept >= M::CROWD, format!("{kept:.2} of the rate of 16"))
}

/// Four names that are free.
async fn four_names_cost_as_long_as_one<M: Measured>() -> Outcome {
    let far = Far::<M>::new(1).await?;
    let trip = far.trip().await?;
    let names = ["a", "b", "c", "d"].map(|name| far.clients[0].lock(name));
    let names = names
        .into_iter()
        .collect::<lockkit_core::Result<Vec<_>>>()?;
    let lock = MultiLock::new(names)?;
    lock.acquire().await?.release().await?;
    let (mut acquires, mut releases) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        let start = Instant::now();
        let guard = lock.acquire().await?;
        acquires.push(start.elapsed());
        let start = Instant::now();
        guard.release().await?;
        releases.push(start.elapsed());
    }
    let (acquires, releases) = (
        ratio(median(acquires)?, trip),
        ratio(median(releases)?, trip),
    );
    println!(
        "four names, {trip:?} away: an acquire takes {acquires:.2} round trips, a release {releases:.2}"
    );
    for (took, whole) in [(acquires, M::ACQUIRE), (releases, 1)] {
        let most = f64::from(whole) * M::NAMES;
        ensure(took <= most, format!("{took:.2} round trips"))?;
    }
    Ok(())
}
