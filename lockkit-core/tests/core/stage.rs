//! A memory store and a client of it, both on Tokio's time.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::LockClient;
use lockkit_core::clock::TokioClock;
use lockkit_core::memory::MemoryStore;

pub(crate) const S: Duration = Duration::from_secs(1);

/// A store and a first client of it.
pub(crate) fn setup() -> (MemoryStore, LockClient) {
    let clock = Arc::new(TokioClock::new());
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let client = LockClient::builder(store.connect())
        .clock(clock)
        .seed(1)
        .build()
        .unwrap();
    (store, client)
}
