//! The store in ZooKeeper: one server, three of them, and one of another version.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName};
use lockkit_zk::{ZkStore, ZkStoreBuilder};
use tokio::time::timeout;
use zookeeper_client::{Client, Error};

use super::pool::{ServerPool, tests_the_client};
use crate::failure::{Failure, Outcome};
use crate::foreign::Version;
use crate::namespace::{Hook, Namespace, Server};
use crate::servers::{ZkCommand, ZkEnsemble, ZkServer};
use crate::setup::Setup;

/// Long enough for a busy machine to send several signs of life in half of it.
const SESSION: Duration = Duration::from_secs(5);
/// How long a session that is being closed may still seem to live.
const CLOSING: Duration = Duration::from_millis(200);
/// How often a second connection tries to close a session.
const TRIES: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    One,
    Three,
}

/// Opens a [`ZkStore`] on servers of this machine.
#[derive(Debug)]
pub struct ZkSetup {
    name: &'static str,
    kind: Kind,
    /// The server, where it is not the system's.
    version: Option<Version>,
    builder: ZkStoreBuilder,
    pool: ServerPool<Servers>,
}

/// What clients connect to.
#[derive(Debug)]
enum Servers {
    One(ZkServer),
    Three(ZkEnsemble),
}

impl ZkSetup {
    fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            version: None,
            builder: ZkStore::builder().session(SESSION),
            pool: ServerPool::new(),
        }
    }

    /// One server: `zk`.
    #[must_use]
    pub fn one() -> Self {
        Self::new("zk", Kind::One)
    }

    /// Three servers that agree: `zk-3`.
    #[must_use]
    pub fn three() -> Self {
        Self::new("zk-3", Kind::Three)
    }

    /// As `zk`, on another version of the server, by its name: `zk39`.
    #[must_use]
    pub fn version(version: Version) -> Self {
        Self {
            version: Some(version),
            ..Self::new(version.name(), Kind::One)
        }
    }

    /// Ends the session of a store at the ensemble, as if it had expired: a second connection takes the
    /// session over and closes it.
    ///
    /// # Errors
    /// - [`Failure`] if the ensemble cannot be reached.
    pub async fn expire(store: &ZkStore) -> Outcome {
        let session = store.client();
        let members = store.address().unwrap_or_default().replace(", ", ",");
        let mut states = session.state_watcher();
        let mut tries = 0;
        while !session.state().is_terminated() {
            tries += 1;
            let connector = Client::connector()
                .with_session_timeout(session.session_timeout())
                .with_session(session.session().clone());
            match Box::pin(connector.connect(&members)).await {
                // The last handle closes the session.
                Ok(second) => drop(second),
                // Two connections that want one session disturb each other.
                Err(_) if tries < TRIES => {}
                Err(error) => return Err(error.into()),
            }
            let ended = async {
                // A server may confuse the two connections, leave that of the store open and answer its pings.
                // A request that needs the leader gets the truth.
                drop(session.sync("/").await);
                while !session.state().is_terminated() {
                    states.changed().await;
                }
            };
            // The store's connection may be back before the second one has closed the session: then once more.
            let _ = timeout(CLOSING, ended).await;
        }
        Ok(())
    }

    async fn start(&self) -> Outcome<Servers> {
        let system = ZkCommand::system;
        let command = self
            .version
            .map_or_else(system, |version| version.zk_command());
        Ok(match self.kind {
            Kind::One => Servers::One(ZkServer::start(&command).await?),
            Kind::Three => Servers::Three(ZkEnsemble::start(&command).await?),
        })
    }
}

#[async_trait]
impl Setup for ZkSetup {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.builder.capabilities()
    }

    fn ttl(&self) -> Duration {
        SESSION
    }

    fn hooks(&self) -> &[Hook] {
        let all = &[
            Hook::Restart,
            Hook::Freeze,
            Hook::Url,
            Hook::Wipe,
            Hook::Proxy,
            Hook::ExpireSession,
            Hook::Residue,
        ];
        match self.kind {
            Kind::One => all,
            // Leaders and members are killed and frozen in tests of their own.
            Kind::Three => &all[2..],
        }
    }

    fn missing(&self) -> Option<String> {
        self.version
            .map_or_else(ZkServer::missing, |version| version.missing())
    }

    fn skips(&self, case: &str) -> Option<String> {
        let without_a_client = [
            "lease::store_ends_a_lease_that_is_not_renewed",
            "fencing::token_grows_over_expiry",
        ];
        if without_a_client.contains(&case) {
            let why =
                "the client library keeps the session while the process runs; `crash` ends it";
            return Some(why.to_owned());
        }
        self.version.and_then(|_| tests_the_client(case, "zk"))
    }

    fn is_one_of_all(&self) -> bool {
        self.version.is_none()
    }

    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>> {
        // No case notices what another one does to its namespace of an ensemble: the ensemble is neither
        // frozen nor restarted here.
        let alone = alone && self.kind == Kind::One;
        Ok(Box::new(ZkNamespace {
            servers: self.pool.server(alone, self.start()).await?,
            number: self.pool.number(),
            builder: self.builder.clone(),
        }))
    }
}

#[derive(Debug)]
struct ZkNamespace {
    servers: Arc<Servers>,
    number: u32,
    builder: ZkStoreBuilder,
}

impl ZkNamespace {
    /// The part of the tree of this case.
    fn chroot(&self) -> String {
        format!("/site-{}", self.number)
    }

    fn members(&self) -> Vec<&ZkServer> {
        match &*self.servers {
            Servers::One(server) => vec![server],
            Servers::Three(ensemble) => ensemble.members().iter().map(|it| &**it).collect(),
        }
    }

    /// A member for what each of them can do.
    fn any(&self) -> &ZkServer {
        let members = self.members();
        members[self.number as usize % members.len()]
    }

    async fn open_ports(
        &self,
        ports: impl Iterator<Item = u16> + Send,
    ) -> Outcome<Arc<dyn DistributedLock>> {
        let builder = self.builder.clone().chroot(self.chroot());
        let builder = ports.fold(builder, |builder, port| builder.host("127.0.0.1", port));
        Ok(Arc::new(builder.connect().await?))
    }
}

#[async_trait]
impl Namespace for ZkNamespace {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        let members = self.members().into_iter();
        self.open_ports(members.map(ZkServer::port)).await
    }

    async fn open_at(&self, address: SocketAddr) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_ports(std::iter::once(address.port())).await
    }

    fn url(&self) -> Option<String> {
        let hosts = self
            .members()
            .into_iter()
            .map(|member| format!("127.0.0.1:{}", member.port()))
            .collect::<Vec<_>>();
        let (hosts, chroot, ttl) = (hosts.join(","), self.chroot(), SESSION.as_millis());
        Some(format!("zk://{hosts}{chroot}?ttl={ttl}ms"))
    }

    async fn wipe(&self) -> Outcome {
        let client = self.any().client().await?;
        delete(&client, &self.chroot()).await
    }

    fn server(&self) -> Option<&dyn Server> {
        match &*self.servers {
            Servers::One(server) => Some(server),
            Servers::Three(_) => None,
        }
    }

    fn address(&self) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, self.any().port()).into())
    }

    async fn expire_session(&self, store: &dyn DistributedLock) -> Outcome {
        let store: Option<&ZkStore> = store.as_any().downcast_ref();
        let store = store.ok_or_else(|| Failure::new("that store has no session"))?;
        ZkSetup::expire(store).await
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let client = self.any().client().await?;
        client.sync("/").await?;
        let encoded = name.as_str().replace('/', "%2F");
        let dir = format!("{}/locks/{encoded}", self.chroot());
        let mut left = match client.list_children(&dir).await {
            Ok(children) => children,
            Err(Error::NoNode) => Vec::new(),
            Err(error) => return Err(error.into()),
        };
        for server in self.members() {
            let watched = server.four_letters("wchp").await?;
            let here = watched.lines().filter(|line| line.starts_with(&dir));
            left.extend(here.map(|path| format!("a watch on {path}")));
        }
        Ok(left)
    }
}

/// Deletes a node and everything below it, while others may add to it.
async fn delete(client: &Client, path: &str) -> Outcome {
    for _ in 0..100 {
        let children = match client.list_children(path).await {
            Ok(children) => children,
            Err(Error::NoNode) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for child in children {
            Box::pin(delete(client, &format!("{path}/{child}"))).await?;
        }
        match client.delete(path, None).await {
            Ok(()) | Err(Error::NoNode) => return Ok(()),
            Err(Error::NotEmpty) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Failure::new(format!("`{path}` never becomes empty")))
}
