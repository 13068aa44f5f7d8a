//! The options of a store: where the server is, and how the store behaves.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::url::{Tls, host_and_port};
use lockkit_core::{Capabilities, Failover, Lease, PollRange, Queueing, Waiting};

pub(crate) const PORT: u16 = 6379;
pub(crate) const SENTINEL_PORT: u16 = 26379;
/// The token must outlive the longest lease; its expiry is set again once a day.
pub(crate) const TWO_DAYS: Duration = Duration::from_secs(2 * 86_400);
/// So rare that 2 000 waiters for one lock cost the server less than a tenth of a processor.
const RECHECK: Duration = Duration::from_secs(5);
/// After a planned failover the former master serves on until the Sentinels demote it, about ten seconds later. Clients
/// leave it when a Sentinel names the new one, within about four.
const FORMER_MASTER_SERVES: Duration = Duration::from_secs(5);
const WEEK: Duration = Duration::from_secs(7 * 86_400);
/// Timers cannot count to the end of all durations.
pub(crate) const LONGEST_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Address {
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
    /// At the master of this name, which the Sentinels on these hosts know.
    Sentinel {
        hosts: Vec<Self>,
        master: String,
    },
    /// At the master of each slot, which these nodes of a cluster know.
    Cluster(Vec<Self>),
}

impl Address {
    pub(crate) fn tcp((host, port): (impl Into<String>, u16)) -> Self {
        let host = host.into();
        Self::Tcp { host, port }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => f.write_str(&host_and_port(host, *port)),
            Self::Unix(path) => path.display().fmt(f),
            Self::Sentinel { hosts, master } => {
                write!(f, "the master `{master}` of {}", list(hosts))
            }
            Self::Cluster(hosts) => write!(f, "the cluster of {}", list(hosts)),
        }
    }
}

fn list(hosts: &[Address]) -> String {
    let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
    hosts.join(", ")
}

/// Which protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// RESP3 if the server knows it, else RESP2.
    Auto,
    /// RESP2: wake-ups come on a second connection.
    Resp2,
    /// RESP3: one connection for all.
    Resp3,
}

/// How long the token of an unused lock is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenTtl {
    /// For so long after its last use, but at least two days; for ever where the
    /// server evicts keys with an end first.
    After(Duration),
    /// Without an expiry: for names that are shared with Redisson's `RFencedLock`.
    Never,
}

/// How long a lease may be that a server does not know of after it became the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quarantine {
    /// As long as a lease, where servers fail over.
    OfTtl,
    For(Duration),
    Off,
}

/// The options of a [`RedisStore`](crate::RedisStore).
///
/// # Examples
/// ```no_run
/// use lockkit_core::Queueing;
/// use lockkit_redis::RedisStore;
///
/// # async fn example() -> Result<(), lockkit_core::BackendError> {
/// let store = RedisStore::builder()
///     .tcp("127.0.0.1", 6379)
///     .user("app")
///     .password("s3cret")
///     .queueing(Queueing::Barging)
///     .connect()
///     .await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing happens before `connect`"]
pub struct RedisStoreBuilder {
    pub(crate) address: Address,
    /// Whether the server is a node of a cluster.
    pub(crate) clustered: bool,
    pub(crate) tls: Option<Tls>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) sentinel_user: Option<String>,
    pub(crate) sentinel_password: Option<String>,
    pub(crate) database: i64,
    pub(crate) protocol: Protocol,
    pub(crate) queueing: Queueing,
    pub(crate) waiting: Waiting,
    pub(crate) poll: PollRange,
    pub(crate) recheck: Duration,
    pub(crate) token_ttl: TokenTtl,
    pub(crate) quarantine: Quarantine,
    pub(crate) ttl: Duration,
    pub(crate) acks: u8,
    /// The nodes of the Redlock of which the server is one; empty if it is alone.
    pub(crate) members: Arc<str>,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
}

impl RedisStoreBuilder {
    pub(crate) fn new() -> Self {
        let defaults = Capabilities::new();
        Self {
            address: Address::tcp(("127.0.0.1", PORT)),
            clustered: false,
            tls: None,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            database: 0,
            protocol: Protocol::Auto,
            queueing: Queueing::Fifo,
            waiting: Waiting::Push,
            poll: defaults.poll,
            recheck: RECHECK,
            token_ttl: TokenTtl::After(WEEK),
            quarantine: Quarantine::OfTtl,
            ttl: Lease::default().ttl(),
            acks: 0,
            members: Arc::default(),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(4),
        }
    }

    /// A server on TCP; 127.0.0.1 and port 6379 if nothing is set.
    pub fn tcp(mut self, host: impl Into<String>, port: u16) -> Self {
        self.address = Address::tcp((host, port));
        self
    }

    /// A server on a Unix socket.
    pub fn unix(mut self, path: impl Into<PathBuf>) -> Self {
        self.address = Address::Unix(path.into());
        self
    }

    /// The present master of this name; `hosts` are its Sentinels, each with its port, usually 26379. User,
    /// password and database are those of the master.
    pub fn sentinel(
        mut self,
        hosts: impl IntoIterator<Item = (impl Into<String>, u16)>,
        master: impl Into<String>,
    ) -> Self {
        self.address = Address::Sentinel {
            hosts: hosts.into_iter().map(Address::tcp).collect(),
            master: master.into(),
        };
        self
    }

    /// A Redis Cluster; `hosts` are some of its nodes, each with its port. They name all the others, by addresses
    /// that this client must reach.
    pub fn cluster(mut self, hosts: impl IntoIterator<Item = (impl Into<String>, u16)>) -> Self {
        self.address = Address::Cluster(hosts.into_iter().map(Address::tcp).collect());
        self
    }

    /// The user of the Sentinels, where they have users. The default is none.
    pub fn sentinel_user(mut self, user: impl Into<String>) -> Self {
        self.sentinel_user = Some(user.into());
        self
    }

    /// The password of the Sentinels. The default is none.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.sentinel_password = Some(password.into());
        self
    }

    /// TLS on TCP, also to Sentinels.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The user of the server's access lists.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The password.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The number of the database. Messages ignore it: give applications on different databases
    /// different names.
    pub fn database(mut self, number: u32) -> Self {
        self.database = number.into();
        self
    }

    /// The protocol.
    pub const fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// The order of waiters.
    pub const fn queueing(mut self, queueing: Queueing) -> Self {
        self.queueing = queueing;
        self
    }

    /// Waiters poll with these pauses and without an order; the store sends no command of publish and
    /// subscribe.
    pub const fn poll(mut self, pauses: PollRange) -> Self {
        self.waiting = Waiting::Poll;
        self.queueing = Queueing::Barging;
        self.poll = pauses;
        self
    }

    /// The longest time between two attempts of a waiter.
    pub const fn recheck(mut self, recheck: Duration) -> Self {
        self.recheck = recheck;
        self
    }

    /// How long an unused token is kept.
    pub fn token_ttl(mut self, ttl: TokenTtl) -> Self {
        self.token_ttl = match ttl {
            TokenTtl::After(ttl) => TokenTtl::After(ttl.max(TWO_DAYS)),
            TokenTtl::Never => TokenTtl::Never,
        };
        self
    }

    /// The longest lease, and how long a server grants nothing after it became the primary or was restarted, so that
    /// no lease is left that it does not know of; with Sentinels 5 s longer, for a former master that serves on.
    /// `None` switches it off. With `Duration::MAX` a server grants this client nothing and is not told of it: for tools
    /// that only read.
    ///
    /// The default with Sentinels and in a cluster is the lease of the client, else off.
    pub fn quarantine(mut self, length: impl Into<Option<Duration>>) -> Self {
        self.quarantine = length.into().map_or(Quarantine::Off, Quarantine::For);
        self
    }

    /// The lease that the client will ask for, if it is not 30 s: the default length of the quarantine.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// A lease, and what a [`Section`](crate::Section) or [`Fenced`](crate::Fenced) work wrote, counts only when so many
    /// replicas have it. The default is 0.
    pub const fn acks(mut self, replicas: u8) -> Self {
        self.acks = replicas;
        self
    }

    /// The longest that connecting may take, at most a day.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// The longest time without a reply, at most a day: after half of it, or a quarter of the quarantine, the
    /// connection is checked, after as long again replaced.
    pub const fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Whether another server takes over when one fails.
    pub(crate) const fn fails_over(&self) -> bool {
        self.clustered || matches!(self.address, Address::Sentinel { .. } | Address::Cluster(_))
    }

    /// The longest lease, if there is a quarantine.
    pub(crate) const fn longest_lease(&self) -> Option<Duration> {
        let length = match (self.quarantine, &self.address) {
            (Quarantine::For(length), _) => length,
            (Quarantine::OfTtl, _) if self.fails_over() => self.ttl,
            _ => return None,
        };
        // There is no lease between two limits that cross.
        let shortest = Capabilities::new().min_ttl;
        Some(match length.as_nanos() < shortest.as_nanos() {
            true => shortest,
            false => length,
        })
    }

    /// How long a server grants nothing, if there is a quarantine.
    pub(crate) const fn quarantine_length(&self) -> Option<Duration> {
        match (self.longest_lease(), &self.address) {
            (Some(lease), Address::Sentinel { .. }) => {
                Some(lease.saturating_add(FORMER_MASTER_SERVES))
            }
            (lease, _) => lease,
        }
    }

    /// How long a silent connection is watched, and then waited for when it is checked. A former primary that was
    /// frozen must have been left before its successor grants.
    pub(crate) fn patience(&self) -> Duration {
        let half = self.response_timeout / 2;
        self.quarantine_length()
            .map_or(half, |length| half.min(length / 4))
    }

    /// What the store will be able to do.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        // A waiter that polls could keep its place in a queue for its whole pause.
        let queueing = match self.waiting {
            Waiting::Push => self.queueing,
            _ => Queueing::Barging,
        };
        let rules = Capabilities::new();
        let (max_ttl, failover) = match self.longest_lease() {
            Some(length) => (length, Failover::Guarded),
            None if self.fails_over() => (rules.max_ttl, Failover::Fenced),
            None => (rules.max_ttl, Failover::Alone),
        };
        Capabilities {
            max_ttl,
            failover,
            queueing,
            waiting: self.waiting,
            poll: self.poll,
            recheck: self.recheck,
            shares: true,
            notes: true,
            adopts: true,
            ..rules
        }
    }
}

/// Shows neither user nor password. INV-14.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("address", &self.address)
            .field("tls", &self.tls.is_some())
            .field("database", &self.database)
            .field("queueing", &self.queueing)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
