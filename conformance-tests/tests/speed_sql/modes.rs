//! Readers, writers, permits and several names.

#![expect(clippy::future_not_send, reason = "each test has a runtime of its own")]

use std::time::Duration;

use conformance_tests::figures::slow_link;
use conformance_tests::mode_speed::Measured;
use conformance_tests::task::spawn;
use conformance_tests::{Outcome, ensure};
use lockkit_core::{Lease, LockClient};
use tokio::time::sleep;

use crate::solo::trip;
use crate::world::{Database, For, Postgres};

/// A database that does not wait for its disk.
pub(crate) struct Shared<D>(D);

impl<D: Database> Measured for Shared<D> {
    const ACQUIRE: u32 = 1;
    // The aim is 2.25, and 2.1 is measured, optimized. A share is a transaction of ten statements, whose plans the first
    // one on each connection makes.
    const ALONE: f64 = 2.9;
    // The aim is 1.5. A client has eight connections, on which 64 requests follow each other: 8.6 are measured,
    // optimized.
    const READERS_OF_ONE: f64 = 20.0;
    const ADMISSION: f64 = 1.5;
    // The aim is 2. Readers lock the row of the name when the writer asks.
    const WRITER: f64 = 8.0;
    const HAND_OFF: f64 = 2.38;
    const READERS: f64 = 0.5;
    // The aim is 3.6, which is measured, optimized.
    const PERMITS: f64 = 2.0;
    const CROWD: f64 = 0.5;
    const NAMES: f64 = 1.2;

    async fn start() -> Outcome<Self> {
        D::start(For::Speed).await.map(Self)
    }

    fn port(&self) -> u16 {
        self.0.port()
    }

    async fn client_at(port: u16) -> Outcome<LockClient> {
        D::client_at(port, false).await
    }

    async fn trip(&self, port: u16) -> Outcome<Duration> {
        trip(self.0.connect(port).await?).await
    }
}

/// It looks once, and renews its place: it does not try to hold.
pub(crate) async fn waiting_reader_asks_twice_each_time() -> Outcome {
    const TIMES: u32 = 4;
    let server = Postgres::start(For::Speed).await?;
    let proxy = slow_link(server.port()).await?;
    let holder = Postgres::client_at(server.port(), false).await?;
    let client = Postgres::client_at(proxy.addr().port(), false).await?;
    let held = holder.lock("a")?.acquire().await?;
    // A waiter of such a lease asks each second.
    let lease = Lease::renewed(Duration::from_secs(3));
    let reader = client.rw_lock("a")?.read().with_lease(lease)?;
    let reader = spawn(async move { reader.acquire().await });
    sleep(Duration::from_millis(500)).await;
    let passed = proxy.counts().round_trips;
    sleep(Duration::from_secs(u64::from(TIMES))).await;
    let counted = proxy.counts().round_trips - passed;
    println!("a reader that waits: {counted} round trips in {TIMES} s");
    ensure(counted > 0, "it does not keep its place")?;
    // It asks a little sooner than each second.
    ensure(
        counted <= u64::from(TIMES + 1) * 2,
        format!("{counted} round trips"),
    )?;
    held.release().await?;
    Ok(reader.soon().await??.release().await?)
}
