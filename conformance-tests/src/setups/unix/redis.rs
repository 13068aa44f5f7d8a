//! The store in Redis: fair, barging, and polling with the rights that a proxy would leave.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName, Queueing};
use lockkit_redis::{RedisStore, RedisStoreBuilder};

use super::hooks_of_server;
use super::pool::{NAMESPACES, ServerPool, tests_the_client};
use crate::failure::Outcome;
use crate::foreign::{Version, missing};
use crate::namespace::{Hook, Namespace, Server};
use crate::servers::RedisServer;
use crate::setup::Setup;
use crate::setups::pauses::{pauses, poll_option};

pub(super) const PASSWORD: &str = "of-the-site";
/// What a polling client may not do, so that nothing is needed that a proxy could refuse.
const FORBIDDEN: &str = "-@pubsub -watch -multi -exec -discard -script -info -hello -client";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fair,
    Barging,
    Poll,
}

/// Opens a [`RedisStore`] on a server of this machine.
#[derive(Debug)]
pub struct RedisSetup {
    name: &'static str,
    kind: Kind,
    /// The server, where it is not the system's.
    version: Option<Version>,
    pool: ServerPool<RedisServer>,
}

impl RedisSetup {
    fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            version: None,
            pool: ServerPool::new(),
        }
    }

    /// Waiters in a queue, wake-ups: `redis`.
    #[must_use]
    pub fn fair() -> Self {
        Self::new("redis", Kind::Fair)
    }

    /// Wake-ups, but no order among waiters: `redis-barging`.
    #[must_use]
    pub fn barging() -> Self {
        Self::new("redis-barging", Kind::Barging)
    }

    /// Neither order nor wake-ups, and a user with few rights: `redis-poll`.
    #[must_use]
    pub fn poll() -> Self {
        Self::new("redis-poll", Kind::Poll)
    }

    /// As `redis`, on another version of the server, by its name: `valkey9`.
    #[must_use]
    pub fn version(version: Version) -> Self {
        Self {
            version: Some(version),
            ..Self::new(version.name(), Kind::Fair)
        }
    }

    fn program(&self) -> PathBuf {
        let system = || RedisServer::PROGRAM.into();
        self.version.map_or_else(system, |version| version.path())
    }

    /// Starts a server that knows a user from its configuration, so that a restart keeps the user.
    async fn start(&self, user: &str) -> Outcome<RedisServer> {
        let (guard, program) = (std::env::current_exe()?, self.program());
        let words = configuration(user, self.kind.rights());
        RedisServer::start_program(&guard, &program, words).await
    }
}

impl Kind {
    fn rights(self) -> Vec<String> {
        let mut rights = rights();
        if self == Self::Poll {
            let fewer = format!("resetchannels {FORBIDDEN}");
            rights.extend(fewer.split(' ').map(str::to_owned));
        }
        rights
    }

    fn builder(self) -> RedisStoreBuilder {
        let builder = RedisStore::builder();
        match self {
            Self::Fair => builder,
            Self::Barging => builder.queueing(Queueing::Barging),
            Self::Poll => builder.poll(pauses()),
        }
    }

    fn query(self) -> String {
        match self {
            Self::Fair => String::new(),
            Self::Barging => "?queue=barging".to_owned(),
            Self::Poll => format!("?wake=poll&{}", poll_option()),
        }
    }
}

#[async_trait]
impl Setup for RedisSetup {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.kind.builder().capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        hooks_of_server(self.capabilities().waiting)
    }

    fn missing(&self) -> Option<String> {
        let system = || missing(RedisServer::PROGRAM);
        self.version
            .map_or_else(system, |version| version.missing())
    }

    fn skips(&self, case: &str) -> Option<String> {
        self.version.and_then(|_| tests_the_client(case, "redis"))
    }

    fn is_one_of_all(&self) -> bool {
        self.version.is_none()
    }

    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>> {
        let number = self.pool.number();
        let user = format!("site-{number}");
        let server = self.pool.server(alone, self.start(&user)).await?;
        set_user(&server, &user, &self.kind.rights()).await?;
        Ok(Box::new(RedisNamespace {
            server,
            kind: self.kind,
            user,
            database: number,
        }))
    }
}

#[derive(Debug)]
struct RedisNamespace {
    server: Arc<RedisServer>,
    kind: Kind,
    user: String,
    database: u32,
}

#[async_trait]
impl Namespace for RedisNamespace {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_at((Ipv4Addr::LOCALHOST, self.server.port()).into())
            .await
    }

    async fn open_at(&self, address: SocketAddr) -> Outcome<Arc<dyn DistributedLock>> {
        let builder = self.kind.builder().tcp("127.0.0.1", address.port());
        let builder = builder.user(&self.user).password(PASSWORD);
        Ok(Arc::new(builder.database(self.database).connect().await?))
    }

    fn url(&self) -> Option<String> {
        let (user, port) = (&self.user, self.server.port());
        let (database, query) = (self.database, self.kind.query());
        Some(format!(
            "redis://{user}:{PASSWORD}@127.0.0.1:{port}/{database}{query}"
        ))
    }

    async fn wipe(&self) -> Outcome {
        self.server.ask(&["FLUSHALL"]).await.map(drop)
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(&*self.server)
    }

    fn address(&self) -> Option<SocketAddr> {
        Some((Ipv4Addr::LOCALHOST, self.server.port()).into())
    }

    async fn lose_pushes(&self, lose: bool) -> Outcome {
        lose_pushes(&self.server, &self.user, lose).await
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        keys_of(&self.server, self.database, name).await
    }
}

/// The configuration of a server that knows a user with these rights.
pub(super) fn configuration(user: &str, rights: Vec<String>) -> Vec<String> {
    let words = ["--databases", &NAMESPACES.to_string(), "--user", user].map(str::to_owned);
    words.into_iter().chain(rights).collect()
}

/// Gives a user of a running server these rights.
pub(super) async fn set_user(
    server: &RedisServer,
    user: &str,
    rights: &[impl AsRef<str> + Sync],
) -> Outcome {
    let rights = rights.iter().map(AsRef::as_ref);
    let words: Vec<&str> = ["ACL", "SETUSER", user].into_iter().chain(rights).collect();
    server.ask(&words).await.map(drop)
}

/// Whether the messages of a user get lost.
pub(super) async fn lose_pushes(server: &RedisServer, user: &str, lose: bool) -> Outcome {
    let right = if lose { "-publish" } else { "+publish" };
    set_user(server, user, &[right]).await
}

/// A user who may do everything.
pub(super) fn rights() -> Vec<String> {
    let rights = format!("on >{PASSWORD} ~* &* +@all");
    rights.split(' ').map(str::to_owned).collect()
}

/// What a database of the server keeps of a lock, without its token counter.
pub(super) async fn keys_of(
    server: &RedisServer,
    database: u32,
    name: &LockName,
) -> Outcome<Vec<String>> {
    const KEYS: &str = "redis.call('SELECT', ARGV[1]) return redis.call('KEYS', '*')";
    let words = ["EVAL", KEYS, "0", &database.to_string()];
    let mut keys = server.ask(&words).await?;
    keys.retain(|key| key.contains(name.as_str()) && !key.starts_with("redisson_lock_token:"));
    Ok(keys)
}
