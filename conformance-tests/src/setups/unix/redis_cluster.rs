//! The store in a Redis Cluster.

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName};
use lockkit_redis::{RedisStore, RedisStoreBuilder};

use super::pool::{ServerPool, tests_the_client};
use super::redis::{PASSWORD, configuration, keys_of, lose_pushes, rights, set_user};
use crate::failure::Outcome;
use crate::foreign::{Version, missing};
use crate::namespace::{Hook, Namespace, Server};
use crate::servers::{RedisCluster, RedisServer};
use crate::setup::Setup;

/// Names with such braces are refused in a cluster.
const ODD_BRACES: [&str; 2] = [
    "names::odd_names_work_like_others",
    "names::odd_names_stay_apart",
];

/// Opens a [`RedisStore`] in a cluster of three masters: `redis-cluster`.
#[derive(Debug)]
pub struct RedisClusterSetup {
    name: String,
    /// The servers, where they are not the system's.
    version: Option<Version>,
    pool: ServerPool<RedisCluster>,
}

impl RedisClusterSetup {
    #[expect(clippy::new_without_default, reason = "it is made in one place")]
    /// Three masters with a replica each.
    #[must_use]
    pub fn new() -> Self {
        Self {
            name: "redis-cluster".to_owned(),
            version: None,
            pool: ServerPool::new(),
        }
    }

    /// The same on another version of the server: `redis6-cluster`.
    #[must_use]
    pub fn version(version: Version) -> Self {
        Self {
            name: format!("{}-cluster", version.name()),
            version: Some(version),
            ..Self::new()
        }
    }
}

/// Without a quarantine: a case that restarts all nodes would wait for its end.
fn builder(hosts: impl IntoIterator<Item = (&'static str, u16)>) -> RedisStoreBuilder {
    RedisStore::builder().quarantine(None).cluster(hosts)
}

#[async_trait]
impl Setup for RedisClusterSetup {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        builder([]).capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        &[
            Hook::LosePushes,
            Hook::Url,
            Hook::Wipe,
            Hook::Restart,
            Hook::Freeze,
            Hook::Residue,
        ]
    }

    fn missing(&self) -> Option<String> {
        let system = || missing(RedisServer::PROGRAM);
        self.version
            .map_or_else(system, |version| version.missing())
    }

    fn skips(&self, case: &str) -> Option<String> {
        let refused = "names whose braces are not around one text are refused in a cluster";
        let odd = ODD_BRACES.contains(&case).then(|| refused.to_owned());
        let of_version = || tests_the_client(case, "redis-cluster");
        odd.or_else(|| self.version.and_then(|_| of_version()))
    }

    fn is_one_of_all(&self) -> bool {
        self.version.is_none()
    }

    /// A cluster has one database. The names of the cases differ.
    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>> {
        let user = format!("site-{}", self.pool.number());
        // Users are not replicated, and a restart keeps those of the configuration.
        let words = configuration(&user, rights());
        let system = || RedisServer::PROGRAM.into();
        let program = self.version.map_or_else(system, |version| version.path());
        let started = RedisCluster::start_program(&program, &words);
        let cluster = self.pool.server(alone, started).await?;
        for node in cluster.nodes() {
            set_user(node, &user, &rights()).await?;
        }
        Ok(Box::new(ClusterNamespace { cluster, user }))
    }
}

#[derive(Debug)]
struct ClusterNamespace {
    cluster: Arc<RedisCluster>,
    user: String,
}

#[async_trait]
impl Namespace for ClusterNamespace {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        let nodes = self.cluster.nodes().iter();
        let hosts = nodes.map(|node| ("127.0.0.1", node.port()));
        let builder = builder(hosts);
        let builder = builder.user(&self.user).password(PASSWORD);
        Ok(Arc::new(builder.connect().await?))
    }

    fn url(&self) -> Option<String> {
        let (user, hosts) = (&self.user, self.cluster.hosts());
        Some(format!(
            "redis+cluster://{user}:{PASSWORD}@{hosts}?quarantine=off"
        ))
    }

    async fn wipe(&self) -> Outcome {
        self.cluster.wipe().await
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&*self.cluster)
    }

    async fn lose_pushes(&self, lose: bool) -> Outcome {
        for node in self.cluster.nodes() {
            lose_pushes(node, &self.user, lose).await?;
        }
        Ok(())
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let mut keys = Vec::new();
        for node in self.cluster.nodes() {
            keys.extend(keys_of(node, 0, name).await?);
        }
        Ok(keys)
    }
}
