//! The options of a store: its servers, and how it behaves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::{BootClock, Clock};
use lockkit_core::url::{Tls, host_and_port};
use lockkit_core::{Capabilities, EndsBy, Failover, Queueing, TtlOf, Waiting};

use crate::keys::Names;

pub(crate) const PORT: u16 = 2379;
pub(crate) const ROOT: &str = "lockkit";
/// A watch tells a waiter of its turn, and its session keeps its place. So its attempts only limit the cost
/// of a lost event.
const RECHECK: Duration = Duration::from_secs(15);

/// The options of an [`EtcdStore`](crate::EtcdStore).
///
/// # Examples
/// ```no_run
/// use lockkit_etcd::EtcdStore;
///
/// # async fn example() -> Result<(), lockkit_core::BackendError> {
/// let store = EtcdStore::builder()
///     .endpoint("10.0.0.1", 2379)
///     .endpoint("10.0.0.2", 2379)
///     .endpoint("10.0.0.3", 2379)
///     .user("app", "s3cret")
///     .connect()
///     .await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing happens before `connect`"]
pub struct EtcdStoreBuilder {
    pub(crate) endpoints: Vec<String>,
    pub(crate) root: Option<String>,
    pub(crate) tls: Option<Tls>,
    pub(crate) user: Option<(String, String)>,
    pub(crate) names: Names,
    pub(crate) token_base: u64,
    pub(crate) recheck: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
}

impl EtcdStoreBuilder {
    pub(crate) fn new() -> Self {
        Self {
            endpoints: Vec::new(),
            root: None,
            tls: None,
            user: None,
            names: Names::Encoded,
            token_base: 0,
            recheck: RECHECK,
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(1),
            clock: Arc::new(BootClock::default()),
        }
    }

    /// Adds a server of the cluster; 127.0.0.1 and port 2379 if nothing is set.
    pub fn endpoint(mut self, host: &str, port: u16) -> Self {
        self.endpoints.push(host_and_port(host, port));
        self
    }

    /// The prefix of all keys, without a slash at its end. The default is `lockkit`, and nothing with
    /// [`Names::Raw`].
    pub fn root(mut self, root: impl Into<String>) -> Self {
        self.root = Some(root.into());
        self
    }

    /// Uses TLS. The client reads the files for each new connection.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The user and password. The client gets a new token from the server when the old one expires.
    pub fn user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((user.into(), password.into()));
        self
    }

    /// How names become keys.
    pub const fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// A number below 2<sup>62</sup> to add to every token, so that tokens keep growing when locks move here from
    /// another store.
    pub const fn token_base(mut self, base: u64) -> Self {
        self.token_base = base;
        self
    }

    /// The longest time between two attempts of a waiter.
    pub const fn recheck(mut self, recheck: Duration) -> Self {
        self.recheck = recheck;
        self
    }

    /// The longest time to connect to one server.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The time without a response after which another server is asked.
    pub const fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// The clock for the session's lease: the same as the client's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The capabilities of the store.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        Capabilities {
            // With its default election timeout, the server lengthens shorter leases.
            min_ttl: Duration::from_secs(2),
            ttl_step: Duration::from_secs(1),
            ttl_of: TtlOf::PerSession,
            ends_by: EndsBy::Session,
            failover: Failover::Majority,
            queueing: Queueing::Fifo,
            waiting: Waiting::Push,
            tells_loss: true,
            recheck: self.recheck,
            shares: true,
            notes: true,
            ..Capabilities::new()
        }
    }
}

/// Shows no user and no password. INV-14.
impl fmt::Debug for EtcdStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStoreBuilder")
            .field("endpoints", &self.endpoints)
            .field("root", &self.root)
            .field("tls", &self.tls.is_some())
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}
