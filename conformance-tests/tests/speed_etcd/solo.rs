//! One client, without contention.

use std::time::Duration;

use conformance_tests::contention::float;
use conformance_tests::figures::{bound, median, ratio, rounds, slow_link};
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::{EtcdCluster, EtcdCommand};
use conformance_tests::{Outcome, Storage, ensure};
use etcd_client::{Client, DeleteOptions, GetOptions, LockOptions, PutOptions, Txn, TxnOp};
use lockkit_core::LockClient;
use lockkit_etcd::{EtcdStore, Section};
use tokio::time::{Instant, sleep};

pub(crate) async fn client_at(port: u16) -> Outcome<LockClient> {
    let store = EtcdStore::builder().endpoint("127.0.0.1", port);
    Ok(LockClient::new(store.connect().await?)?)
}

/// One server that waits for the disk, as in production.
pub(crate) async fn cluster() -> Outcome<EtcdCluster> {
    EtcdCluster::start(&EtcdCommand::system().storage(Storage::Disk), 1).await
}

/// The round trip of the bare client.
pub(crate) async fn trip(port: u16) -> Outcome<Duration> {
    let mut asker = Client::connect([format!("127.0.0.1:{port}")], None).await?;
    asker.get("trip", None).await?;
    let mut trips = Vec::new();
    for _ in 0..30 {
        let start = Instant::now();
        asker.get("trip", None).await?;
        trips.push(start.elapsed());
    }
    median(trips)
}

pub(crate) async fn cycle_is_two_round_trips() -> Outcome {
    let cluster = cluster().await?;
    let proxy = slow_link(cluster.ports()[0]).await?;
    let lock = client_at(proxy.addr().port()).await?.lock("solo")?;
    two_round_trips(&proxy, async || Ok(lock.acquire().await?.release().await?)).await
}

pub(crate) async fn section_is_two_round_trips() -> Outcome {
    let cluster = cluster().await?;
    let proxy = slow_link(cluster.ports()[0]).await?;
    let lock = client_at(proxy.addr().port()).await?.lock("solo")?;
    let section = Section::of(&lock).read("value");
    two_round_trips(&proxy, async || {
        let (entered, found) = section.enter().await?;
        let value = found[0]
            .kvs()
            .first()
            .map_or("", |it| it.value_str().unwrap_or(""));
        let put = TxnOp::put("value", (value.len() + 1).to_string(), None);
        entered.commit(Txn::new().and_then([put])).await?;
        Ok(())
    })
    .await
}

async fn two_round_trips(proxy: &Proxy, cycle: impl AsyncFn() -> Outcome) -> Outcome {
    const CYCLES: u64 = 60;
    // The session is made.
    cycle().await?;
    let trip = trip(proxy.addr().port()).await?;
    let passed = || proxy.counts().round_trips;
    let (began, before) = (Instant::now(), passed());
    let mut cycles = Vec::new();
    for _ in 0..CYCLES {
        let start = Instant::now();
        cycle().await?;
        cycles.push(start.elapsed());
    }
    let all = passed() - before;
    // Keep-alives of the session and of the connection are counted as well, with or without cycles.
    let before = passed();
    sleep(began.elapsed()).await;
    let counted = float(all.saturating_sub(passed() - before)) / float(CYCLES);
    let trips = ratio(median(cycles)?, trip);
    println!(
        "solo, {trip:?} away: a cycle takes as long as {trips:.2} round trips, {counted:.2} are counted"
    );
    ensure(
        counted <= 2.15,
        format!("{counted:.2} round trips are counted"),
    )?;
    ensure(trips <= bound(2.15, 2.9), format!("{trips:.2} round trips"))
}

/// The time of each, as the median of several rounds of cycles.
struct Costs {
    ours: Duration,
    /// A put and a deletion.
    least: Duration,
    /// The two requests of this store, sent by the bare client.
    same: Duration,
    /// The lock of the client library, which is the server's own.
    theirs: Duration,
}

impl Costs {
    async fn measure() -> Outcome<Self> {
        let cycles = usize::try_from(rounds(900))?;
        let cluster = cluster().await?;
        let lock = client_at(cluster.ports()[0]).await?.lock("solo")?;
        lock.acquire().await?.release().await?;
        let mut asker = cluster.client().await?;
        let lease = asker.lease_grant(60, None).await?.id();
        let options = || PutOptions::new().with_lease(lease);
        let [mut ours, mut least, mut same, mut theirs] = [const { Vec::new() }; 4];
        // In turns, so that other load of the machine and its disk affects all. Each follows each of the
        // others equally often, because one may have to wait for work that the other left behind.
        let orders = [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]];
        for turn in orders.iter().cycle().take(cycles).flatten() {
            let start = Instant::now();
            let times = match turn {
                0 => {
                    lock.acquire().await?.release().await?;
                    &mut ours
                }
                1 => {
                    asker.put("bare", "holder", Some(options())).await?;
                    asker.delete("bare", None).await?;
                    &mut least
                }
                2 => {
                    asker.txn(place("same/", "same/1", options())).await?;
                    let former = DeleteOptions::new().with_prev_key();
                    asker.delete("same/1", Some(former)).await?;
                    &mut same
                }
                _ => {
                    let options = LockOptions::new().with_lease(lease);
                    let held = asker.lock("theirs", Some(options)).await?;
                    asker.unlock(held.key()).await?;
                    &mut theirs
                }
            };
            times.push(start.elapsed());
        }
        Ok(Self {
            ours: median(ours)?,
            least: median(least)?,
            same: median(same)?,
            theirs: median(theirs)?,
        })
    }
}

/// The transaction of an acquire.
fn place(directory: &str, key: &str, options: PutOptions) -> Txn {
    let all = GetOptions::new().with_prefix().with_keys_only();
    Txn::new().and_then([
        TxnOp::put(key, "holder", Some(options.with_prev_key())),
        TxnOp::get(directory, Some(all.with_limit(200))),
    ])
}

pub(crate) async fn cycle_costs_little_more_than_its_requests() -> Outcome {
    let costs = Costs::measure().await?;
    let (least, same, theirs) = (
        ratio(costs.ours, costs.least),
        ratio(costs.ours, costs.same),
        ratio(costs.ours, costs.theirs),
    );
    println!(
        "solo, loopback: {:?} a cycle, {least:.2} of a put and a deletion, {same:.2} of its own two requests, \
         {theirs:.2} of the library's lock",
        costs.ours
    );
    ensure(
        least <= bound(1.15, 2.0),
        format!("{least:.2} of put and delete"),
    )?;
    ensure(
        same <= bound(1.15, 2.0),
        format!("{same:.2} of its two requests"),
    )?;
    ensure(
        theirs < bound(1.0, 2.0),
        format!("{theirs:.2} of the library's lock"),
    )
}
