//! Servers and clients of these tests.

use std::path::Path;
use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::EtcdCluster;
use conformance_tests::taker::Taker;
use conformance_tests::task::until;
use conformance_tests::{Failure, Outcome};
use etcd_client::{Client, GetOptions};
use lockkit_core::{Lease, LockClient};
use lockkit_etcd::{EtcdStore, EtcdStoreBuilder};

/// The lease of the tests in which one ends.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// The lease of the tests in which none may end.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The time that a busy machine may add.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) fn builder(ports: &[u16]) -> EtcdStoreBuilder {
    let add = |builder: EtcdStoreBuilder, port: &u16| builder.endpoint("127.0.0.1", *port);
    ports.iter().fold(EtcdStore::builder(), add)
}

pub(crate) async fn store(cluster: &EtcdCluster) -> Outcome<EtcdStore> {
    Ok(builder(&cluster.ports()).connect().await?)
}

pub(crate) fn client_of(store: &EtcdStore, ttl: Duration) -> Outcome<LockClient> {
    let client = LockClient::builder(store.clone()).lease(Lease::renewed(ttl));
    Ok(client.build()?)
}

pub(crate) async fn client(cluster: &EtcdCluster, ttl: Duration) -> Outcome<LockClient> {
    client_of(&store(cluster).await?, ttl)
}

/// The way to the first server.
pub(crate) async fn proxy(cluster: &EtcdCluster) -> Outcome<Proxy> {
    let server = ([127, 0, 0, 1], cluster.ports()[0]).into();
    Ok(Proxy::start(server).await?)
}

pub(crate) async fn behind(proxy: &Proxy, ttl: Duration) -> Outcome<LockClient> {
    let store = builder(&[proxy.addr().port()]).connect().await?;
    client_of(&store, ttl)
}

/// A process that takes locks with leases of `ttl`.
pub(crate) async fn taker(cluster: &EtcdCluster, ttl: Duration) -> Outcome<Taker> {
    let program = Path::new(env!("CARGO_BIN_EXE_lock-taker"));
    let url = format!("etcd://{}", cluster.endpoints());
    Taker::start(program, &url, ttl).await
}

/// The keys of all holders and waiters, the oldest first.
pub(crate) async fn keys(asker: &mut Client) -> Outcome<Vec<String>> {
    let options = GetOptions::new().with_prefix().with_keys_only();
    let found = asker.get("lockkit/", Some(options)).await?;
    let mut keys = Vec::new();
    for kv in found.kvs() {
        keys.push((kv.create_revision(), kv.key_str()?.to_owned()));
    }
    keys.sort();
    Ok(keys.into_iter().map(|(_, key)| key).collect())
}

/// Waits until there are this many holders and waiters. Returns their keys.
pub(crate) async fn contenders(asker: &mut Client, count: usize) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    until("all stand in the queue", async || {
        found = keys(asker).await?;
        Ok(found.len() == count)
    })
    .await?;
    Ok(found)
}

/// The one lease of a store.
pub(crate) fn lease(store: &EtcdStore) -> Outcome<i64> {
    let lease = store.leases().first().copied();
    lease.ok_or_else(|| Failure::new("the store has no lease"))
}
