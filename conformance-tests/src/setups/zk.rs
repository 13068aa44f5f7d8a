//! The store in ZooKeeper: one server, three of them, and one of another version.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName};
use lockkit_zk::{ZkStore, ZkStoreBuilder};
use tokio::sync::OnceCell;
use zookeeper_client::{Client, Error};

use crate::case::Case;
use crate::failure::{Failure, Outcome};
use crate::foreign::ZkVersion;
use crate::proxy::Proxy;
use crate::servers::{ZkCommand, ZkEnsemble, ZkServer};
use crate::setup::{Hook, Setup, Site};

/// Long enough for a busy machine to send several signs of life in half of it.
const SESSION: Duration = Duration::from_secs(5);

/// The modules of cases that another version of the server could fail. The others try the client's
/// part, on any server.
const OF_THE_SERVER: &[&str] = &[
    "exclusion",
    "queue",
    "fencing",
    "names",
    "capabilities",
    "admin",
    "residue",
];

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
    version: Option<ZkVersion>,
    /// For the cases that break nothing.
    shared: OnceCell<Arc<Servers>>,
    sites: AtomicUsize,
    #[cfg(feature = "mutants")]
    mutant: Option<lockkit_zk::ZkMutant>,
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
            shared: OnceCell::new(),
            sites: AtomicUsize::new(0),
            #[cfg(feature = "mutants")]
            mutant: None,
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
    pub fn version(version: ZkVersion) -> Self {
        Self {
            version: Some(version),
            ..Self::new(version.name(), Kind::One)
        }
    }

    /// The same with a promise of the store broken.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn mutant(mut self, mutant: lockkit_zk::ZkMutant) -> Self {
        self.mutant = Some(mutant);
        self
    }

    async fn start(&self) -> Outcome<Arc<Servers>> {
        let system = ZkCommand::system;
        let command = self
            .version
            .map_or_else(system, |version| version.command());
        Ok(Arc::new(match self.kind {
            Kind::One => Servers::One(ZkServer::start(&command).await?),
            Kind::Three => Servers::Three(ZkEnsemble::start(&command).await?),
        }))
    }

    async fn servers(&self, alone: bool) -> Outcome<Arc<Servers>> {
        // What happens to one site of an ensemble is not felt by others: it is neither frozen nor
        // restarted here.
        if alone && self.kind == Kind::One {
            return self.start().await;
        }
        self.shared.get_or_try_init(|| self.start()).await.cloned()
    }
}

#[async_trait]
impl Setup for ZkSetup {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        ZkStore::builder().session(SESSION).capabilities()
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
        match self.version {
            Some(version) => version.missing(),
            None => ZkServer::missing(),
        }
    }

    fn skips(&self, case: &Case) -> Option<String> {
        if case.name() == "lease::store_ends_a_lease_that_nobody_renews" {
            let why =
                "the client library keeps the session while the process runs; `crash` ends it";
            return Some(why.to_owned());
        }
        let skip = self.version.is_some() && !OF_THE_SERVER.contains(&case.module());
        skip.then(|| "any version of the server will do; `zk` runs it".to_owned())
    }

    fn is_one_of_all(&self) -> bool {
        self.version.is_none()
    }

    async fn site(&self, alone: bool) -> Outcome<Box<dyn Site>> {
        let number = self.sites.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(ZkSite {
            servers: self.servers(alone).await?,
            number,
            #[cfg(feature = "mutants")]
            mutant: self.mutant,
        }))
    }
}

#[derive(Debug)]
struct ZkSite {
    servers: Arc<Servers>,
    number: usize,
    #[cfg(feature = "mutants")]
    mutant: Option<lockkit_zk::ZkMutant>,
}

impl ZkSite {
    /// The part of the tree that this case has for itself.
    fn chroot(&self) -> String {
        format!("/site-{}", self.number)
    }

    fn ports(&self) -> Vec<u16> {
        match &*self.servers {
            Servers::One(server) => vec![server.port()],
            Servers::Three(ensemble) => {
                let members = ensemble.members().iter();
                members.map(|member| member.port()).collect()
            }
        }
    }

    fn one(&self) -> Outcome<&ZkServer> {
        match &*self.servers {
            Servers::One(server) => Ok(server),
            Servers::Three(_) => Err(Failure::new("the case needs a server of its own")),
        }
    }

    fn any(&self) -> &ZkServer {
        match &*self.servers {
            Servers::One(server) => server,
            Servers::Three(ensemble) => {
                let members = ensemble.members();
                &members[self.number % members.len()]
            }
        }
    }

    async fn open_at(&self, ports: &[u16]) -> Outcome<Arc<dyn DistributedLock>> {
        let hosts = |builder: ZkStoreBuilder, port: &u16| builder.host("127.0.0.1", *port);
        let builder = ZkStore::builder().session(SESSION).chroot(self.chroot());
        let builder = ports.iter().fold(builder, hosts);
        #[cfg(feature = "mutants")]
        let builder = match self.mutant {
            Some(mutant) => builder.mutant(mutant),
            None => builder,
        };
        Ok(Arc::new(builder.connect().await?))
    }
}

#[async_trait]
impl Site for ZkSite {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_at(&self.ports()).await
    }

    fn url(&self) -> Option<String> {
        let hosts = self
            .ports()
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect::<Vec<_>>();
        let (hosts, chroot, ttl) = (hosts.join(","), self.chroot(), SESSION.as_millis());
        Some(format!("zk://{hosts}{chroot}?ttl={ttl}ms"))
    }

    async fn wipe(&self) -> Outcome {
        let client = self.any().client().await?;
        delete(&client, &self.chroot()).await
    }

    async fn restart(&self) -> Outcome {
        self.one()?.restart().await
    }

    async fn freeze(&self) -> Outcome {
        self.one()?.process().stop()
    }

    async fn thaw(&self) -> Outcome {
        self.one()?.process().resume()
    }

    async fn open_through_proxy(&self) -> Outcome<(Arc<dyn DistributedLock>, Proxy)> {
        let proxy = Proxy::start(([127, 0, 0, 1], self.any().port()).into()).await?;
        let store = self.open_at(&[proxy.addr().port()]).await?;
        Ok((store, proxy))
    }

    async fn expire_session(&self, store: &dyn DistributedLock) -> Outcome {
        let store: Option<&ZkStore> = store.as_any().downcast_ref();
        let store = store.ok_or_else(|| Failure::new("that store has no session"))?;
        Ok(store.expire_session().await?)
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
        let servers: Vec<&ZkServer> = match &*self.servers {
            Servers::One(server) => vec![server],
            Servers::Three(ensemble) => ensemble.members().iter().map(|member| &**member).collect(),
        };
        for server in servers {
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
