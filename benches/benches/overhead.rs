//! What the client adds to the bare operation, on the memory store.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Mutex;

use criterion::{Criterion, criterion_group, criterion_main};
use lockkit_core::contract::{DistributedLock as _, Ticket};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{ClientId, HolderId, Lease, LockClient, LockName};
use tokio::runtime::Runtime;

fn overhead(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let client = runtime
        .block_on(async { LockClient::new(MemoryStore::new()) })
        .unwrap();
    let lock = client.lock("orders/42").unwrap();
    let mut group = criterion.benchmark_group("overhead");

    let map = Mutex::new(HashMap::new());
    let name = lock.name().clone();
    group.bench_function("bare map: insert + remove", |bencher| {
        bencher.iter(|| {
            map.lock().unwrap().insert(black_box(name.clone()), 1);
            map.lock().unwrap().remove(&name)
        });
    });

    let store = MemoryStore::new();
    let mut n = 0;
    let id = ClientId::random();
    group.bench_function("memory store: attempt + release", |bencher| {
        bencher.to_async(&runtime).iter(|| {
            n += 1;
            let ticket = Ticket::new(
                LockName::clone(&name),
                HolderId::new(id, n),
                Lease::default().ttl(),
            );
            let store = &store;
            async move {
                store.attempt(&ticket).await.unwrap();
                store.release(&ticket).await.unwrap()
            }
        });
    });

    group.bench_function("client: acquire + release", |bencher| {
        bencher
            .to_async(&runtime)
            .iter(async || lock.acquire().await.unwrap().release().await.unwrap());
    });

    let guard = runtime.block_on(lock.acquire()).unwrap();
    group.bench_function("client: reenter + release", |bencher| {
        bencher
            .to_async(&runtime)
            .iter(async || guard.reenter().unwrap().release().await.unwrap());
    });
    group.finish();
}

criterion_group!(benches, overhead);
criterion_main!(benches);
