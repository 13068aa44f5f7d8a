//! What may cross threads: checked by the compiler.

use std::time::Duration;

use lockkit_core::{DistributedLock, Error, Guard, Lease, Lock, LockClient, Owner};

const fn send<T: Send>(_: &T) {}
const fn shared<T: Send + Sync + 'static>() {}

#[test]
fn public_types_are_send_and_sync() {
    shared::<LockClient>();
    shared::<Lock>();
    shared::<Guard>();
    shared::<Owner>();
    shared::<Lease>();
    shared::<Error>();
    shared::<Box<dyn DistributedLock>>();
}

/// Never run: its body only has to compile.
#[expect(dead_code, reason = "the compiler is the test")]
fn every_public_future_is_send(client: &LockClient, lock: &Lock, guard: Guard) {
    send(&lock.acquire());
    send(&lock.try_acquire());
    send(&lock.acquire_timeout(Duration::ZERO));
    send(&lock.inspect());
    send(&lock.break_lock());
    send(&lock.scope(async |guard| guard.token()));
    send(&client.list(""));
    send(&client.drain());
    send(&client.shutdown(Duration::ZERO));
    send(&guard.lost());
    send(&guard.extend(Duration::ZERO));
    send(&guard.protect(std::future::ready(())));
    send(&guard.release());
}
