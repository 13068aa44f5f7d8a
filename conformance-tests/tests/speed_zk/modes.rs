//! Readers, writers, permits and several names.

use std::time::Duration;

use conformance_tests::Outcome;
use conformance_tests::mode_speed::Measured;
use conformance_tests::servers::ZkServer;
use lockkit_core::LockClient;

use crate::solo::{client_at, start, trip};

/// One server.
pub(crate) struct Zk(ZkServer);

impl Measured for Zk {
    const ACQUIRE: u32 = 2;
    const ALONE: f64 = 3.3;
    // The aim is 1.5. Each reader sends two requests, one after the other.
    const READERS_OF_ONE: f64 = 2.0;
    const ADMISSION: f64 = 1.5;
    // The aim is 2. A reader knows of its grant after two round trips, and a writer watches two nodes before its
    // own: when both are deleted, it lists those that are left.
    const WRITER: f64 = 5.5;
    // 80 in a second, if a round trip takes 10 ms.
    const HAND_OFF: f64 = 1.25;
    const READERS: f64 = 0.9;
    // The aim is 3.6. A waiter farther back than five nodes lists again when one of them is deleted, and others
    // are deleted during that.
    const PERMITS: f64 = 1.5;
    const CROWD: f64 = 0.7;
    // The aim is 1.2. The client library writes one request at a time, or some together after a reply.
    const NAMES: f64 = 2.3;

    async fn start() -> Outcome<Self> {
        start().await.map(Self)
    }

    fn port(&self) -> u16 {
        self.0.port()
    }

    async fn client_at(port: u16) -> Outcome<LockClient> {
        client_at(port).await
    }

    async fn trip(&self, port: u16) -> Outcome<Duration> {
        trip(port).await
    }
}
