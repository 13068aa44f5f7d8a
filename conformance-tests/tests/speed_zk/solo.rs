//! One client alone.

use std::time::Duration;

use conformance_tests::contention::float;
use conformance_tests::figures::{bound, first_quarter, median, ratio, rounds, slow_link};
use conformance_tests::servers::{ZkCommand, ZkServer};
use conformance_tests::{Outcome, ensure};
use lockkit_core::LockClient;
use lockkit_zk::{Section, Write, ZkStore};
use tokio::time::Instant;
use zookeeper_client::{Acls, Client, CreateMode, LockPrefix};

pub(crate) async fn start() -> Outcome<ZkServer> {
    // The default of servers: a parent that is empty for a moment stays.
    let command = ZkCommand::system().option("-Dznode.container.checkIntervalMs=60000");
    ZkServer::start(&command).await
}

pub(crate) async fn client_at(port: u16) -> Outcome<LockClient> {
    let store = ZkStore::builder().host("127.0.0.1", port);
    Ok(LockClient::new(store.connect().await?)?)
}

/// A client of the library without us.
async fn bare_at(port: u16) -> Outcome<Client> {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(30));
    Ok(connector.connect(&format!("127.0.0.1:{port}")).await?)
}

pub(crate) async fn cycle_is_three_round_trips() -> Outcome {
    const CYCLES: u64 = 60;
    let server = start().await?;
    let proxy = slow_link(server.port()).await?;
    let lock = client_at(proxy.addr().port()).await?.lock("solo")?;
    let other = slow_link(server.port()).await?;
    let bare = bare_at(other.addr().port()).await?;
    lock.acquire().await?.release().await?;
    theirs(&bare).await?;
    let passed = proxy.counts().round_trips;
    let (mut cycles, mut trips, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..CYCLES {
        let start = Instant::now();
        lock.acquire().await?.release().await?;
        cycles.push(start.elapsed());
        let start = Instant::now();
        bare.check_stat("/").await?;
        trips.push(start.elapsed());
        let start = Instant::now();
        theirs(&bare).await?;
        others.push(start.elapsed());
    }
    let trip = first_quarter(trips)?;
    let count = |times| Outcome::Ok(ratio(first_quarter(times)?, trip));
    let (ours, theirs) = (count(cycles)?, count(others)?);
    let counted = float(proxy.counts().round_trips - passed) / float(CYCLES);
    println!(
        "solo, {trip:?} away: a cycle takes as long as {ours:.2} round trips, {counted:.2} are counted; \
         the library's own lock {theirs:.2}"
    );
    ensure(
        counted <= 3.1,
        format!("{counted:.2} round trips are counted"),
    )?;
    ensure(ours <= bound(3.2, 3.9), format!("{ours:.2} round trips"))?;
    ensure(
        ours < theirs * 1.05,
        format!("{ours:.2}, and the library's own {theirs:.2}"),
    )
}

/// Without the read, which is the caller's.
pub(crate) async fn section_is_three_round_trips() -> Outcome {
    const SECTIONS: u64 = 60;
    let server = start().await?;
    let proxy = slow_link(server.port()).await?;
    let parent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let bare = bare_at(server.port()).await?;
    bare.create("/value", b"", &parent).await?;
    let section = Section::of(&client_at(proxy.addr().port()).await?.lock("solo")?);
    section.enter().await?.into_guard().release().await?;
    let passed = proxy.counts().round_trips;
    for number in 0..SECTIONS {
        let set = Write::set("/value", number.to_string());
        section.enter().await?.commit(&[set]).await?;
    }
    let counted = float(proxy.counts().round_trips - passed) / float(SECTIONS);
    println!("section: {counted:.2} round trips are counted");
    ensure(
        counted <= 3.1,
        format!("{counted:.2} round trips are counted"),
    )
}

/// A cycle of the library's own lock, whose release cannot be awaited.
async fn theirs(client: &Client) -> Outcome {
    let prefix = LockPrefix::new_curator("/theirs", "lock-")?;
    let made = zookeeper_client::LockOptions::new(Acls::anyone_all())
        .with_ancestor_options(CreateMode::Container.with_acls(Acls::anyone_all()))?;
    drop(client.lock(prefix, b"", made).await?);
    // Requests are answered in order: this one after that release.
    client.check_stat("/").await?;
    Ok(())
}

/// What the store does for a cycle, and nothing else.
async fn least(client: &Client, dir: &str) -> Outcome {
    let made = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let prefix = format!("{dir}/_c_7c0a4f6e-5a0f-4c3e-9f52-5a3a5f0d5b11-lock-");
    let created = client.create(&prefix, b"x", &made);
    let listed = client.list_children(dir);
    let (_, number) = created.await?;
    ensure(listed.await?.len() == 1, "another client is here")?;
    Ok(client.delete(&format!("{prefix}{number}"), None).await?)
}

pub(crate) async fn cycle_costs_little_more_than_its_requests() -> Outcome {
    const CYCLES: u32 = rounds(300);
    let server = start().await?;
    let lock = client_at(server.port()).await?.lock("solo")?;
    let bare = bare_at(server.port()).await?;
    let parent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    bare.mkdir("/bare", &parent).await?;
    lock.acquire().await?.release().await?;
    theirs(&bare).await?;
    // In turns, so that what else the machine does meets all.
    let (mut ours, mut requests, mut library) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..9 {
        let start = Instant::now();
        for _ in 0..CYCLES {
            lock.acquire().await?.release().await?;
        }
        ours.push(start.elapsed() / CYCLES);
        let start = Instant::now();
        for _ in 0..CYCLES {
            least(&bare, "/bare").await?;
        }
        requests.push(start.elapsed() / CYCLES);
        let start = Instant::now();
        for _ in 0..CYCLES {
            theirs(&bare).await?;
        }
        library.push(start.elapsed() / CYCLES);
    }
    let (ours, least, theirs) = (median(ours)?, median(requests)?, median(library)?);
    let (ratio, other) = (ratio(ours, least), ratio(ours, theirs));
    println!(
        "solo, loopback: {ours:?} a cycle, its requests alone {least:?}, ratio {ratio:.2}; \
         the library's own lock {theirs:?}, ratio {other:.2}"
    );
    ensure(ratio <= bound(1.15, 2.5), format!("ratio {ratio:.2}"))?;
    ensure(
        other <= bound(1.0, 2.0),
        format!("ratio {other:.2} to the library's own lock"),
    )
}

/// What one round trip takes.
pub(crate) async fn trip(port: u16) -> Outcome<Duration> {
    let bare = bare_at(port).await?;
    let mut trips = Vec::new();
    for _ in 0..30 {
        let start = Instant::now();
        bare.check_stat("/").await?;
        trips.push(start.elapsed());
    }
    first_quarter(trips)
}
