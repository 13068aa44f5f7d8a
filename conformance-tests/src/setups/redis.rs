//! The store in Redis: fair, barging, and polling with the rights that a proxy would leave.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName, PollRange, Queueing};
use lockkit_redis::{RedisStore, RedisStoreBuilder};
use tokio::sync::OnceCell;

use crate::case::Case;
use crate::failure::Outcome;
use crate::foreign::{Version, missing};
use crate::proxy::Proxy;
use crate::servers::RedisServer;
use crate::setup::{Hook, Setup, Site};

/// How many sites may share a server, each with a database of its own.
const SITES: u32 = 4096;
const PASSWORD: &str = "of-the-site";
/// What a polling client may not do, so that nothing is needed that a proxy could refuse.
const FORBIDDEN: &str = "-@pubsub -watch -multi -exec -discard -script -info -hello -client";

/// The modules of cases that another version of the server could fail: its scripts, their errors,
/// its expiry, pushes and connections. The others try the client's part, on any server.
const OF_THE_SERVER: &[&str] = &[
    "exclusion",
    "queue",
    "loss",
    "fencing",
    "names",
    "capabilities",
    "admin",
    "ambiguity",
    "outage",
    "residue",
    "cost",
];

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
    /// For the cases that break nothing.
    shared: OnceCell<Arc<RedisServer>>,
    sites: AtomicU32,
    #[cfg(feature = "mutants")]
    mutant: Option<lockkit_redis::RedisMutant>,
}

impl RedisSetup {
    fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
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
    pub const fn mutant(mut self, mutant: lockkit_redis::RedisMutant) -> Self {
        self.mutant = Some(mutant);
        self
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

    async fn start(&self, words: Vec<String>) -> Outcome<Arc<RedisServer>> {
        let (guard, program) = (std::env::current_exe()?, self.program());
        let server = RedisServer::start_program(&guard, &program, words).await?;
        Ok(Arc::new(server))
    }

    async fn server(&self, alone: bool, user: &str) -> Outcome<Arc<RedisServer>> {
        let rights = self.kind.rights();
        if alone {
            // In its configuration, so that a restart does not forget the user.
            let mut words = vec!["--user".to_owned(), user.to_owned()];
            words.extend(rights);
            return self.start(words).await;
        }
        let databases = || vec!["--databases".to_owned(), SITES.to_string()];
        let shared = self.shared.get_or_try_init(|| self.start(databases()));
        let server = shared.await.cloned()?;
        let mut words = vec!["ACL", "SETUSER", user];
        words.extend(rights.iter().map(String::as_str));
        server.ask(&words).await?;
        Ok(server)
    }
}

impl Kind {
    fn rights(self) -> Vec<String> {
        let mut rights = format!("on >{PASSWORD} ~* &* +@all");
        if self == Self::Poll {
            rights = format!("{rights} resetchannels {FORBIDDEN}");
        }
        rights.split(' ').map(str::to_owned).collect()
    }

    fn builder(self) -> RedisStoreBuilder {
        let builder = RedisStore::builder();
        match self {
            Self::Fair => builder,
            Self::Barging => builder.queueing(Queueing::Barging),
            Self::Poll => builder.poll(PollRange::new(
                Duration::from_millis(5),
                Duration::from_millis(100),
            )),
        }
    }

    fn query(self) -> &'static str {
        match self {
            Self::Fair => "",
            Self::Barging => "?queue=barging",
            Self::Poll => "?wake=poll&poll=5ms..100ms",
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
        let all = &[
            Hook::LosePushes,
            Hook::Url,
            Hook::Wipe,
            Hook::Restart,
            Hook::Freeze,
            Hook::Proxy,
            Hook::Residue,
        ];
        let without_pushes = &all[1..];
        if self.kind == Kind::Poll {
            without_pushes
        } else {
            all
        }
    }

    fn missing(&self) -> Option<String> {
        match self.version {
            Some(version) => version.missing(),
            None => missing(RedisServer::PROGRAM),
        }
    }

    fn skips(&self, case: &Case) -> Option<String> {
        let skip = self.version.is_some() && !OF_THE_SERVER.contains(&case.module());
        skip.then(|| "any version of the server will do; `redis` runs it".to_owned())
    }

    fn is_one_of_all(&self) -> bool {
        self.version.is_none()
    }

    async fn site(&self, alone: bool) -> Outcome<Box<dyn Site>> {
        let number = self.sites.fetch_add(1, Ordering::Relaxed) % SITES;
        let user = format!("site-{number}");
        Ok(Box::new(RedisSite {
            database: if alone { 0 } else { number },
            server: self.server(alone, &user).await?,
            kind: self.kind,
            #[cfg(feature = "mutants")]
            mutant: self.mutant,
            user,
        }))
    }
}

#[derive(Debug)]
struct RedisSite {
    server: Arc<RedisServer>,
    kind: Kind,
    #[cfg(feature = "mutants")]
    mutant: Option<lockkit_redis::RedisMutant>,
    user: String,
    database: u32,
}

impl RedisSite {
    async fn open_at(&self, port: u16) -> Outcome<Arc<dyn DistributedLock>> {
        let builder = self
            .kind
            .builder()
            .tcp("127.0.0.1", port)
            .database(self.database);
        #[cfg(feature = "mutants")]
        let builder = match self.mutant {
            Some(mutant) => builder.mutant(mutant),
            None => builder,
        };
        let store = builder
            .user(&self.user)
            .password(PASSWORD)
            .connect()
            .await?;
        Ok(Arc::new(store))
    }
}

#[async_trait]
impl Site for RedisSite {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.open_at(self.server.port()).await
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

    async fn restart(&self) -> Outcome {
        self.server.restart().await
    }

    async fn freeze(&self) -> Outcome {
        self.server.process().stop()
    }

    async fn thaw(&self) -> Outcome {
        self.server.process().resume()
    }

    async fn open_through_proxy(&self) -> Outcome<(Arc<dyn DistributedLock>, Proxy)> {
        let proxy = Proxy::start(([127, 0, 0, 1], self.server.port()).into()).await?;
        let store = self.open_at(proxy.addr().port()).await?;
        Ok((store, proxy))
    }

    async fn lose_pushes(&self, lose: bool) -> Outcome {
        let right = if lose { "-publish" } else { "+publish" };
        let words = ["ACL", "SETUSER", &self.user, right];
        self.server.ask(&words).await.map(drop)
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let keys = self.server.ask(&["KEYS", "*"]).await?;
        let token = |key: &String| key.starts_with("redisson_lock_token:");
        let here = |key: &String| key.contains(name.as_str());
        Ok(keys
            .into_iter()
            .filter(here)
            .filter(|key| !token(key))
            .collect())
    }
}
