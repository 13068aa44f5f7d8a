//! The store in a Redis Cluster.

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName};
use lockkit_redis::{RedisStore, RedisStoreBuilder};

use super::pool::ServerPool;
use super::redis::{PASSWORD, configuration, keys_of, lose_pushes, rights, set_user};
use crate::failure::Outcome;
use crate::foreign::missing;
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
    pool: ServerPool<RedisCluster>,
}

impl RedisClusterSetup {
    #[expect(clippy::new_without_default, reason = "it is made in one place")]
    /// Three masters with a replica each.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pool: ServerPool::new(),
        }
    }
}

/// Without a quarantine: a case that restarts all nodes would wait for its end.
fn builder() -> RedisStoreBuilder {
    RedisStore::builder().quarantine(None)
}

#[async_trait]
impl Setup for RedisClusterSetup {
    fn name(&self) -> &str {
        "redis-cluster"
    }

    fn capabilities(&self) -> Capabilities {
        builder().capabilities()
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
        missing(RedisServer::PROGRAM)
    }

    fn skips(&self, case: &str) -> Option<String> {
        let refused = "names whose braces are not around one text are refused in a cluster";
        ODD_BRACES.contains(&case).then(|| refused.to_owned())
    }

    /// A cluster has one database. The names of the cases differ.
    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>> {
        let user = format!("site-{}", self.pool.number());
        // Users are not replicated, and a restart keeps those of the configuration.
        let words = configuration(&user, rights());
        let cluster = self.pool.server(alone, RedisCluster::start(&words)).await?;
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
        let builder = builder().cluster(hosts);
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
            keys.extend(keys_of(node, name).await?);
        }
        Ok(keys)
    }
}
