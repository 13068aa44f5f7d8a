//! The store in etcd: one server, three servers, other versions.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{DeleteOptions, GetOptions};
use lockkit_core::{Capabilities, DistributedLock, LockName};
use lockkit_etcd::{EtcdStore, EtcdStoreBuilder};

use super::pool::{ServerPool, tests_the_client};
use crate::failure::{Failure, Outcome};
use crate::foreign::{Version, missing};
use crate::namespace::{Hook, Namespace, Server};
use crate::servers::{EtcdCluster, EtcdCommand};
use crate::setup::Setup;

/// Opens an [`EtcdStore`] on servers of this machine.
#[derive(Debug)]
pub struct EtcdSetup {
    name: &'static str,
    members: usize,
    /// The server, where it is not the system's.
    version: Option<Version>,
    builder: EtcdStoreBuilder,
    pool: ServerPool<EtcdCluster>,
}

impl EtcdSetup {
    fn new(name: &'static str, members: usize) -> Self {
        Self {
            name,
            members,
            version: None,
            builder: EtcdStore::builder(),
            pool: ServerPool::new(),
        }
    }

    /// One server: `etcd`.
    #[must_use]
    pub fn single() -> Self {
        Self::new("etcd", 1)
    }

    /// Three servers: `etcd3`.
    #[must_use]
    pub fn cluster() -> Self {
        Self::new("etcd3", 3)
    }

    /// As `etcd`, on another version of the server, by its name: `etcd-3.6`.
    #[must_use]
    pub fn version(version: Version) -> Self {
        Self {
            version: Some(version),
            ..Self::new(version.name(), 1)
        }
    }

    async fn start(&self) -> Outcome<EtcdCluster> {
        let command = self.version.map_or_else(EtcdCommand::system, |version| {
            EtcdCommand::of(version.path())
        });
        EtcdCluster::start(&command, self.members).await
    }
}

#[async_trait]
impl Setup for EtcdSetup {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.builder.capabilities()
    }

    fn ttl(&self) -> Duration {
        // Where memory is short, each renewal waits for a disk.
        Duration::from_secs(3)
    }

    fn hooks(&self) -> &[Hook] {
        let all = &[
            Hook::Proxy,
            Hook::ExpireSession,
            Hook::Url,
            Hook::Wipe,
            Hook::Residue,
            Hook::Restart,
            Hook::Freeze,
        ];
        match self.members {
            // The client would turn to another member than the one behind the proxy.
            2.. => &all[1..],
            _ => all,
        }
    }

    fn missing(&self) -> Option<String> {
        let system = || missing(EtcdCluster::PROGRAM);
        self.version
            .map_or_else(system, |version| version.missing())
    }

    fn skips(&self, case: &str) -> Option<String> {
        let plain = self.version.is_none() && self.members == 1;
        (!plain).then(|| tests_the_client(case, "etcd")).flatten()
    }

    fn is_one_of_all(&self) -> bool {
        self.version.is_none()
    }

    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>> {
        Ok(Box::new(EtcdNamespace {
            cluster: self.pool.server(alone, self.start()).await?,
            root: format!("site{}", self.pool.number()),
            builder: self.builder.clone(),
        }))
    }
}

#[derive(Debug)]
struct EtcdNamespace {
    cluster: Arc<EtcdCluster>,
    root: String,
    builder: EtcdStoreBuilder,
}

impl EtcdNamespace {
    async fn open_ports(&self, ports: &[u16]) -> Outcome<Arc<dyn DistributedLock>> {
        let mut builder = self.builder.clone().root(&self.root);
        for port in ports {
            builder = builder.endpoint("127.0.0.1", *port);
        }
        Ok(Arc::new(builder.connect().await?))
    }
}

#[async_trait]
impl Namespace for EtcdNamespace {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_ports(&self.cluster.ports()).await
    }

    async fn open_at(&self, address: SocketAddr) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_ports(&[address.port()]).await
    }

    fn url(&self) -> Option<String> {
        let endpoints = self.cluster.endpoints();
        Some(format!("etcd://{endpoints}/{}", self.root))
    }

    async fn wipe(&self) -> Outcome {
        let mut client = self.cluster.client().await?;
        let everything = DeleteOptions::new().with_prefix();
        client
            .delete(format!("{}/", self.root), Some(everything))
            .await?;
        Ok(())
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&*self.cluster)
    }

    fn address(&self) -> Option<SocketAddr> {
        let port = self.cluster.ports().first().copied();
        port.map(|port| (Ipv4Addr::LOCALHOST, port).into())
    }

    async fn expire_session(&self, store: &dyn DistributedLock) -> Outcome {
        let store: Option<&EtcdStore> = store.as_any().downcast_ref();
        let store = store.ok_or_else(|| Failure::new("that store is not etcd"))?;
        let mut client = self.cluster.client().await?;
        for lease in store.leases() {
            client.lease_revoke(lease).await?;
        }
        Ok(())
    }

    async fn residue(&self, _name: &LockName) -> Outcome<Vec<String>> {
        let mut client = self.cluster.client().await?;
        let all = GetOptions::new().with_prefix().with_keys_only();
        let found = client.get(format!("{}/", self.root), Some(all)).await?;
        let keys = found.kvs().iter();
        Ok(keys
            .map(|kv| format!("key {}", String::from_utf8_lossy(kv.key())))
            .collect())
    }
}
