//! The store in etcd: one server, three servers, other versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{DeleteOptions, GetOptions};
use lockkit_core::{Capabilities, DistributedLock, LockName};
use lockkit_etcd::{EtcdStore, EtcdStoreBuilder};
use tokio::sync::OnceCell;

use crate::case::Case;
use crate::failure::{Failure, Outcome};
use crate::foreign::{EtcdVersion, missing};
use crate::proxy::Proxy;
use crate::servers::{EtcdCluster, EtcdCommand};
use crate::setup::{Hook, Setup, Site};

/// The modules of cases that other servers could fail: their transactions, leases and events. The
/// others try the client's part, on any server.
const OF_THE_SERVER: &[&str] = &[
    "exclusion",
    "queue",
    "loss",
    "fencing",
    "names",
    "capabilities",
    "ambiguity",
    "outage",
    "residue",
];

/// Opens an [`EtcdStore`] on servers of this machine.
#[derive(Debug)]
pub struct EtcdSetup {
    name: &'static str,
    members: usize,
    /// The server, where it is not the system's.
    version: Option<EtcdVersion>,
    /// For the cases that break nothing.
    shared: OnceCell<Arc<EtcdCluster>>,
    sites: AtomicU32,
    #[cfg(feature = "mutants")]
    mutant: Option<lockkit_etcd::EtcdMutant>,
}

impl EtcdSetup {
    fn new(name: &'static str, members: usize) -> Self {
        Self {
            name,
            members,
            version: None,
            shared: OnceCell::new(),
            sites: AtomicU32::new(0),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// The same with a promise of the store broken.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn mutant(mut self, mutant: lockkit_etcd::EtcdMutant) -> Self {
        self.mutant = Some(mutant);
        self
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
    pub fn version(version: EtcdVersion) -> Self {
        Self {
            version: Some(version),
            ..Self::new(version.name(), 1)
        }
    }

    fn builder(&self) -> EtcdStoreBuilder {
        let builder = EtcdStore::builder();
        #[cfg(feature = "mutants")]
        let builder = match self.mutant {
            Some(mutant) => builder.mutant(mutant),
            None => builder,
        };
        builder
    }

    async fn start(&self) -> Outcome<Arc<EtcdCluster>> {
        let command = self.version.map_or_else(EtcdCommand::system, |version| {
            EtcdCommand::of(version.path())
        });
        Ok(Arc::new(EtcdCluster::start(&command, self.members).await?))
    }

    async fn cluster_for(&self, alone: bool) -> Outcome<Arc<EtcdCluster>> {
        if alone {
            return self.start().await;
        }
        self.shared.get_or_try_init(|| self.start()).await.cloned()
    }
}

#[async_trait]
impl Setup for EtcdSetup {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.builder().capabilities()
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
        match self.version {
            Some(version) => version.missing(),
            None => missing(EtcdCluster::PROGRAM),
        }
    }

    fn skips(&self, case: &Case) -> Option<String> {
        let plain = self.version.is_none() && self.members == 1;
        let skip = !plain && !OF_THE_SERVER.contains(&case.module());
        skip.then(|| "any server will do; `etcd` runs it".to_owned())
    }

    fn is_one_of_all(&self) -> bool {
        self.version.is_none()
    }

    async fn site(&self, alone: bool) -> Outcome<Box<dyn Site>> {
        let number = self.sites.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(EtcdSite {
            cluster: self.cluster_for(alone).await?,
            root: format!("site{number}"),
            builder: self.builder(),
        }))
    }
}

#[derive(Debug)]
struct EtcdSite {
    cluster: Arc<EtcdCluster>,
    root: String,
    builder: EtcdStoreBuilder,
}

impl EtcdSite {
    async fn open_at(&self, ports: &[u16]) -> Outcome<Arc<dyn DistributedLock>> {
        let mut builder = self.builder.clone().root(&self.root);
        for port in ports {
            builder = builder.endpoint("127.0.0.1", *port);
        }
        Ok(Arc::new(builder.connect().await?))
    }
}

#[async_trait]
impl Site for EtcdSite {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_at(&self.cluster.ports()).await
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

    async fn restart(&self) -> Outcome {
        for member in 0..self.cluster.ports().len() {
            self.cluster.process(member).kill();
        }
        for member in 0..self.cluster.ports().len() {
            self.cluster.process(member).restart()?;
        }
        self.cluster.ready().await
    }

    async fn freeze(&self) -> Outcome {
        for member in 0..self.cluster.ports().len() {
            self.cluster.process(member).stop()?;
        }
        Ok(())
    }

    async fn thaw(&self) -> Outcome {
        for member in 0..self.cluster.ports().len() {
            self.cluster.process(member).resume()?;
        }
        Ok(())
    }

    async fn open_through_proxy(&self) -> Outcome<(Arc<dyn DistributedLock>, Proxy)> {
        let ports = self.cluster.ports();
        let port = ports.first().copied().unwrap_or_default();
        let proxy = Proxy::start(([127, 0, 0, 1], port).into()).await?;
        let store = self.open_at(&[proxy.addr().port()]).await?;
        Ok((store, proxy))
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
