//! One client alone.

use std::time::Duration;

use conformance_tests::figures::{bound, median, ratio, rounds, slow_link};
use conformance_tests::proxy::Proxy;
use conformance_tests::servers::{FakeSentinel, MASTER, RedisServer};
use conformance_tests::{Outcome, ensure};
use lockkit_core::{HolderId, LockClient};
use lockkit_redis::{Command, RedisStore, Section};
use redis::Script;
use tokio::time::Instant;

use conformance_tests::contention::float;

pub(crate) async fn client_at(port: u16) -> Outcome<LockClient> {
    let store = RedisStore::builder().tcp("127.0.0.1", port);
    Ok(LockClient::new(store.connect().await?)?)
}

pub(crate) async fn cycle_is_two_round_trips() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let proxy = slow_link(server.port()).await?;
    cycles(&server, &proxy, client_at(proxy.addr().port()).await?).await
}

async fn cycles(server: &RedisServer, proxy: &Proxy, client: LockClient) -> Outcome {
    const CYCLES: u64 = 60;
    let lock = client.lock("solo")?;
    lock.acquire().await?.release().await?;
    let trip = ping(proxy.addr().port()).await?;
    let before = server.calls("evalsha").await?;
    let passed = proxy.counts().round_trips;
    let (mut cycles, mut reentries) = (Vec::new(), Vec::new());
    for _ in 0..CYCLES {
        let start = Instant::now();
        let guard = lock.acquire().await?;
        let held = Instant::now();
        let again = guard.reenter()?;
        reentries.push(held.elapsed());
        again.release().await?;
        let inside = held.elapsed();
        guard.release().await?;
        cycles.push(start.elapsed() - inside);
    }
    let scripts = server.calls("evalsha").await? - before;
    let counted = each(proxy.counts().round_trips - passed, CYCLES);
    let trips = ratio(median(cycles)?, trip);
    let reentry = median(reentries)?;
    println!(
        "solo, {trip:?} away: a cycle takes as long as {trips:.2} round trips, {counted:.2} are counted, \
         re-entry {reentry:?}"
    );
    ensure(
        counted <= 2.1,
        format!("{counted:.2} round trips are counted"),
    )?;
    ensure(trips <= bound(2.15, 2.9), format!("{trips:.2} round trips"))?;
    let quick = reentry < Duration::from_micros(100);
    ensure(quick, format!("a re-entry takes {reentry:?}"))?;
    ensure(
        scripts == CYCLES * 2,
        format!("{scripts} EVALSHA in {CYCLES} cycles"),
    )
}

pub(crate) async fn section_is_two_round_trips() -> Outcome {
    const SECTIONS: u64 = 60;
    let server = RedisServer::forgetful().await?;
    let proxy = slow_link(server.port()).await?;
    let lock = client_at(proxy.addr().port()).await?.lock("solo")?;
    let section = Section::of(&lock).read(Command::new("GET").arg("value"));
    lock.acquire().await?.release().await?;
    let trip = ping(proxy.addr().port()).await?;
    let passed = proxy.counts().round_trips;
    let mut sections = Vec::new();
    for _ in 0..SECTIONS {
        let start = Instant::now();
        let (entered, replies) = section.enter().await?;
        let value = replies[0].as_int().unwrap_or(0) + 1;
        let set = Command::new("SET").arg("value").arg(value.to_string());
        entered.commit(&[set]).await?;
        sections.push(start.elapsed());
    }
    let counted = each(proxy.counts().round_trips - passed, SECTIONS);
    let trips = ratio(median(sections)?, trip);
    println!(
        "section, {trip:?} away: takes as long as {trips:.2} round trips, {counted:.2} are counted"
    );
    ensure(
        counted <= 2.15,
        format!("{counted:.2} round trips are counted"),
    )?;
    ensure(trips <= bound(2.15, 2.9), format!("{trips:.2} round trips"))
}

/// What one round trip takes.
pub(crate) async fn ping(port: u16) -> Outcome<Duration> {
    let client = redis::Client::open(("127.0.0.1", port))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut trips = Vec::new();
    for _ in 0..30 {
        let start = Instant::now();
        let _: String = redis::cmd("PING").query_async(&mut connection).await?;
        trips.push(start.elapsed());
    }
    median(trips)
}

const QUEUE: &str = include_str!("../../../lockkit-redis/src/scripts/queue.lua");
const KIND: &str = include_str!("../../../lockkit-redis/src/scripts/kind.lua");
const ACQUIRE: &str = include_str!("../../../lockkit-redis/src/scripts/acquire.lua");
const ENDING: &str = include_str!("../../../lockkit-redis/src/scripts/ending.lua");
const RELEASE: &str = include_str!("../../../lockkit-redis/src/scripts/release.lua");

/// The store's own two scripts, sent by nothing but the client library.
pub(crate) struct Bare {
    acquire: Script,
    release: Script,
    connection: redis::aio::MultiplexedConnection,
}

impl Bare {
    pub(crate) async fn connect(server: &RedisServer) -> Outcome<Self> {
        Ok(Self {
            acquire: Script::new(&[QUEUE, KIND, ACQUIRE].concat()),
            release: Script::new(&[QUEUE, ENDING, RELEASE].concat()),
            connection: server.connect().await?,
        })
    }

    pub(crate) async fn cycle(&self, name: &str) -> Outcome {
        let mut connection = self.connection.clone();
        let me = HolderId::new(lockkit_core::ClientId::random(), 1).to_string();
        let keys = [
            name.to_owned(),
            format!("redisson_lock_token:{{{name}}}"),
            format!("lockkit_queue:{{{name}}}"),
            format!("lockkit_wait:{{{name}}}"),
            format!("lockkit_gone:{{{name}}}:{me}"),
        ];
        let mut acquire = self.acquire.prepare_invoke();
        let mut release = self.release.prepare_invoke();
        for key in &keys {
            acquire.key(key);
            release.key(key);
        }
        for word in [
            "604800000",
            &me,
            "",
            "30000",
            "0",
            "15000",
            "1",
            "channel",
            "x",
        ] {
            acquire.arg(word);
        }
        for word in ["604800000", &me, "", "channel", "0", "0"] {
            release.arg(word);
        }
        let taken: (u8, u64) = acquire.invoke_async(&mut connection).await?;
        ensure(taken.0 == 1, "the bare script did not take it")?;
        let released: bool = release.invoke_async(&mut connection).await?;
        ensure(released, "the bare script did not release it")
    }
}

pub(crate) async fn cycle_costs_little_more_than_its_scripts() -> Outcome {
    const CYCLES: u32 = 20;
    let server = RedisServer::forgetful().await?;
    let lock = client_at(server.port()).await?.lock("solo")?;
    let bare = Bare::connect(&server).await?;
    bare.cycle("bare").await?;
    lock.acquire().await?.release().await?;
    // In short turns, so that what else the machine does meets both.
    let (mut ours, mut least) = (Vec::new(), Vec::new());
    for _ in 0..rounds(450) {
        let start = Instant::now();
        for _ in 0..CYCLES {
            lock.acquire().await?.release().await?;
        }
        ours.push(start.elapsed() / CYCLES);
        let start = Instant::now();
        for _ in 0..CYCLES {
            bare.cycle("bare").await?;
        }
        least.push(start.elapsed() / CYCLES);
    }
    let (ours, least) = (median(ours)?, median(least)?);
    let ratio = ratio(ours, least);
    println!("solo, loopback: {ours:?} a cycle, its scripts alone {least:?}, ratio {ratio:.2}");
    ensure(ratio <= bound(1.15, 2.5), format!("ratio {ratio:.2}"))
}

/// The figure for each, to print.
pub(crate) fn each(count: u64, of: u64) -> f64 {
    float(count) / float(of)
}

/// A client that Sentinels lead to the server does not ask them, nor more of the server, in a cycle.
pub(crate) async fn cycle_behind_sentinels_is_two_round_trips() -> Outcome {
    let server = RedisServer::forgetful().await?;
    server.has_lost_nothing().await?;
    let proxy = slow_link(server.port()).await?;
    let sentinel = FakeSentinel::naming(proxy.addr(), 1, Duration::ZERO).await?;
    let store = RedisStore::builder().sentinel([("127.0.0.1", sentinel.port())], MASTER);
    cycles(&server, &proxy, LockClient::new(store.connect().await?)?).await
}

/// A client in a cluster asks for no map in a cycle, and knows the master.
pub(crate) async fn cycle_in_a_cluster_is_two_round_trips() -> Outcome {
    let (node, link) = node_behind_a_slow_link().await?;
    let client = client_in_cluster(link.addr().port()).await?;
    cycles(&node, &link, client).await
}

/// A cluster of one node, which announces the address of the link.
pub(crate) async fn node_behind_a_slow_link() -> Outcome<(RedisServer, Proxy)> {
    let words = ["--appendonly", "no", "--cluster-enabled", "yes"];
    let node = RedisServer::start(&std::env::current_exe()?, words).await?;
    let link = slow_link(node.port()).await?;
    let port = link.addr().port().to_string();
    for command in [
        ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"],
        ["CONFIG", "SET", "cluster-announce-port", &port],
    ] {
        node.ask(&command).await?;
    }
    let ready = || async {
        let info = node.ask(&["CLUSTER", "INFO"]).await?.concat();
        ensure(info.contains("cluster_state:ok"), info)
    };
    node.process().ready(ready).await?;
    // Where its quarantine is: in the slot 0.
    node.has_lost_nothing_at("lockkit_primary:{3560}").await?;
    Ok((node, link))
}

pub(crate) async fn client_in_cluster(port: u16) -> Outcome<LockClient> {
    let store = RedisStore::builder().cluster([("127.0.0.1", port)]);
    Ok(LockClient::new(store.connect().await?)?)
}
