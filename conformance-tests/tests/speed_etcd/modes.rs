//! Readers, writers, permits and several names.

use std::time::Duration;

use conformance_tests::Outcome;
use conformance_tests::mode_speed::Measured;
use conformance_tests::servers::EtcdCluster;
use lockkit_core::LockClient;

use crate::solo::{client_at, cluster, trip};

/// One server that waits for its disk.
pub(crate) struct Etcd(EtcdCluster);

impl Measured for Etcd {
    const ACQUIRE: u32 = 1;
    const ALONE: f64 = 2.25;
    const READERS_OF_ONE: f64 = 1.5;
    const ADMISSION: f64 = 1.5;
    // The aim is 2. A writer watches two keys before its own: when the farther is deleted, it lists those that
    // are left, and watches two of them.
    const WRITER: f64 = 4.5;
    // 85 in a second, if a round trip takes 10 ms.
    const HAND_OFF: f64 = 1.176;
    const READERS: f64 = 0.9;
    // The aim is 3.6. A waiter farther back than five keys lists again when one of them is deleted, and others
    // are deleted during that.
    const PERMITS: f64 = 2.2;
    const CROWD: f64 = 0.7;
    const NAMES: f64 = 1.2;

    async fn start() -> Outcome<Self> {
        cluster().await.map(Self)
    }

    fn port(&self) -> u16 {
        self.0.ports()[0]
    }

    async fn client_at(port: u16) -> Outcome<LockClient> {
        client_at(port).await
    }

    async fn trip(&self, port: u16) -> Outcome<Duration> {
        trip(port).await
    }
}
