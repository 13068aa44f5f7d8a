//! A memory store and a client of it, both on Tokio's time.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::TokioClock;
use lockkit_core::layers::{Faults, Faulty};
use lockkit_core::memory::{MemoryStore, MemoryStoreBuilder};
use lockkit_core::{DistributedLock, LockClient};
use tokio::time::Instant;

pub(crate) const S: Duration = Duration::from_secs(1);

/// A store and a first client of it.
pub(crate) fn setup() -> (MemoryStore, LockClient) {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let client = LockClient::builder(store.connect())
        .clock(clock)
        .build()
        .unwrap();
    (store, client)
}

/// A store, a client whose requests can be disturbed, and another client.
pub(crate) struct Stage {
    pub(crate) store: MemoryStore,
    pub(crate) faults: Faults,
    pub(crate) client: LockClient,
    pub(crate) other: LockClient,
    pub(crate) began: Instant,
}

pub(crate) fn stage(builder: MemoryStoreBuilder) -> Stage {
    let clock = Arc::new(TokioClock::new());
    let store = builder.clock(clock.clone()).build();
    let faulty = Faulty::new(Arc::new(store.connect()), 1);
    let faults = faulty.faults();
    let client = |store: Arc<dyn DistributedLock>| {
        let client = LockClient::builder_arc(store).clock(clock.clone());
        client.build().unwrap()
    };
    Stage {
        faults,
        client: client(Arc::new(faulty)),
        other: client(Arc::new(store.connect())),
        store,
        began: Instant::now(),
    }
}
