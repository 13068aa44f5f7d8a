//! Readers, writers, permits and several names.

#![expect(clippy::future_not_send, reason = "each test has a runtime of its own")]

use std::time::Duration;

use conformance_tests::Outcome;
use conformance_tests::mode_speed::Measured;
use lockkit_core::LockClient;

use crate::solo::trip;
use crate::world::{Database, For};

/// A database that does not wait for its disk.
pub(crate) struct Shared<D>(D);

impl<D: Database> Measured for Shared<D> {
    const ACQUIRE: u32 = 1;
    // The aim is 2.25. A share is a transaction of eight statements, which takes the server milliseconds on a
    // busy machine.
    const ALONE: f64 = 2.9;
    // The aim is 1.5. A client has eight connections, and a request that finds the row of the name locked is
    // sent again.
    const READERS_OF_ONE: f64 = 40.0;
    // The aim is 1.5. The notification wakes all readers at once, and they pass through the row of the name one
    // after the other.
    const ADMISSION: f64 = 70.0;
    // The aim is 2. As above, and readers lock the row of the name when the writer asks.
    const WRITER: f64 = 10.0;
    const HAND_OFF: f64 = 2.38;
    const READERS: f64 = 0.5;
    // The aim is 3.6. A release wakes all waiters, which lock the row of the name for each other.
    const PERMITS: f64 = 0.8;
    const CROWD: f64 = 0.3;
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
