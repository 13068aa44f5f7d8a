//! The options of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::{BootClock, Clock};
use lockkit_core::url::{Tls, host_and_port};
use lockkit_core::{Capabilities, EndsBy, Failover, Lease, Queueing, TtlOf, Waiting};

pub(crate) const PORT: u16 = 2181;
const ROOT: &str = "/locks";

/// How a lock name becomes a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Names {
    /// One node below the root for each name: `/` is encoded, so that `a` and `a/b` are unrelated.
    Encoded,
    /// The name is the path below the root, as Curator programs write it.
    Raw,
}

/// How the nodes in a queue are named. The store respects those of all dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// `_c_<uuid>-lock-<number>`: Curator, go-zookeeper, and kazoo with `extra_lock_patterns`.
    Curator,
    /// `<uuid>__lock__<number>`: kazoo as it is.
    Kazoo,
}

/// Who may read and change the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Every client of the ensemble.
    Anyone,
    /// Clients that authenticate as the same user.
    Creator,
}

/// How a user authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Auth {
    /// The scheme `digest` of access lists.
    Digest,
    /// SASL with DIGEST-MD5.
    #[cfg(feature = "sasl")]
    Sasl,
}

/// The options of a [`ZkStore`](crate::ZkStore).
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
/// use lockkit_zk::ZkStore;
///
/// # async fn example() -> Result<(), lockkit_core::BackendError> {
/// let store = ZkStore::builder()
///     .host("zk1", 2181)
///     .host("zk2", 2181)
///     .host("zk3", 2181)
///     .session(Duration::from_secs(10))
///     .connect()
///     .await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing happens before `connect`"]
pub struct ZkStoreBuilder {
    /// The members, as `host:port`.
    pub(crate) hosts: Vec<String>,
    pub(crate) chroot: String,
    pub(crate) root: String,
    pub(crate) names: Names,
    pub(crate) dialect: Dialect,
    pub(crate) session: Duration,
    pub(crate) recheck: Duration,
    pub(crate) token_base: u64,
    pub(crate) connect_timeout: Duration,
    pub(crate) user: Option<(String, String)>,
    pub(crate) auth: Auth,
    pub(crate) access: Option<Access>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tls: Option<Tls>,
}

impl ZkStoreBuilder {
    pub(crate) fn new() -> Self {
        Self {
            hosts: Vec::new(),
            chroot: String::new(),
            root: ROOT.to_owned(),
            names: Names::Encoded,
            dialect: Dialect::Curator,
            session: Lease::default().ttl(),
            recheck: Duration::from_secs(15),
            token_base: 0,
            connect_timeout: Duration::from_secs(5),
            user: None,
            auth: Auth::Digest,
            access: None,
            clock: Arc::new(BootClock::default()),
            tls: None,
        }
    }

    /// Adds a member of the ensemble; 127.0.0.1 and port 2181 if there is none.
    pub fn host(mut self, name: impl Into<String>, port: u16) -> Self {
        self.hosts.push(host_and_port(&name.into(), port));
        self
    }

    /// The part of the tree that the store sees, such as `/shop`; created if it is not there.
    pub fn chroot(mut self, path: impl Into<String>) -> Self {
        self.chroot = path.into();
        self
    }

    /// The node that contains the locks, inside the chroot: `/locks` if not set.
    pub fn root(mut self, path: impl Into<String>) -> Self {
        self.root = path.into();
        self
    }

    /// How a lock name becomes a path.
    pub const fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// How the nodes in a queue are named.
    pub const fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// How long the session lasts without a heartbeat, which is the lease of all holds. The
    /// ensemble may grant another time; [`capabilities`](lockkit_core::DistributedLock::capabilities)
    /// of the store tell which.
    pub const fn session(mut self, timeout: Duration) -> Self {
        self.session = timeout;
        self
    }

    /// The longest time between two attempts of a waiter.
    pub const fn recheck(mut self, recheck: Duration) -> Self {
        self.recheck = recheck;
        self
    }

    /// A number below 2<sup>62</sup> that is added to every token: for names from a store whose tokens were
    /// larger.
    pub const fn token_base(mut self, base: u64) -> Self {
        self.token_base = base;
        self
    }

    /// The longest that connecting may take.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Who the client is. Nodes belong to this user then, unless [`access`](Self::access) says otherwise.
    pub fn user(
        mut self,
        auth: Auth,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.user = Some((user.into(), password.into()));
        self.auth = auth;
        self
    }

    /// Who may read and change the nodes.
    pub const fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Uses TLS. It must say which certificates to trust: the client library does not know those of the
    /// system.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The clock of the client above, which measures the age of the session.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The capabilities of the store, if the ensemble grants the session as requested.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        Capabilities {
            min_ttl: self.session,
            max_ttl: self.session,
            ttl_of: TtlOf::PerSession,
            ends_by: EndsBy::Session,
            failover: Failover::Majority,
            queueing: Queueing::Fifo,
            waiting: Waiting::Push,
            recheck: self.recheck,
            tells_loss: true,
            shares: true,
            notes: true,
            ..Capabilities::new()
        }
    }

    pub(crate) fn who_may(&self) -> Access {
        self.access.unwrap_or(match self.user {
            Some(_) => Access::Creator,
            None => Access::Anyone,
        })
    }
}

/// Shows neither user nor password. INV-14.
impl fmt::Debug for ZkStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkStoreBuilder")
            .field("hosts", &self.hosts)
            .field("chroot", &self.chroot)
            .field("root", &self.root)
            .field("names", &self.names)
            .field("dialect", &self.dialect)
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}
