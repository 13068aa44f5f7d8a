//! From a URL to a client.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::Clock;
use lockkit_core::url::{InvalidUrl, StoreUrl};
use lockkit_core::{ClientSettings, Error, Lease, LockClient, Result};
use tokio::runtime::Handle;

use crate::stores;

/// Opens the store that a URL names and makes a client for it.
///
/// | URL | store |
/// |---|---|
/// | `memory:` | in this process, and private to this client and its clones: two calls open two stores |
/// | `file:/var/lib/lockkit`, `file:locks` | a directory of this machine, absolute or inside the working directory |
/// | `sqlite:/var/lib/locks.db`, `sqlite:locks.db` | a file of SQLite, absolute or inside the working directory (feature `sqlite`) |
/// | `postgres://user:password@host:5432/database`, also `postgresql://` | a table of PostgreSQL (feature `postgres`); its own TLS options with feature `tls` |
/// | `mysql://user:password@host:3306/database`, also `mariadb://` | a table of MySQL or MariaDB (feature `mysql`); its own TLS options with feature `tls` |
/// | `redis://user:password@host:6379/0`, also `valkey://` | a Redis or Valkey server (feature `redis`); `rediss://` or `valkeys://` with TLS (feature `tls`), `redis+unix:///path` or `unix:///path` on a socket |
/// | `redis+sentinel://user:password@host1,host2,host3/mymaster/0` | the present master of this name, found through its Sentinels (feature `redis`); `rediss+sentinel://` with TLS (feature `tls`) |
/// | `redis+cluster://user:password@host1,host2,host3` | a Redis Cluster, found through some of its nodes (feature `redis`); `rediss+cluster://` with TLS (feature `tls`) |
/// | `redlock://user:password@host1,host2,host3/0` | a majority of several Redis or Valkey servers (feature `redis`); `redlocks://` with TLS (feature `tls`) |
/// | `zk://host1,host2,host3/chroot` | an ensemble of ZooKeeper servers (feature `zk`); `zks://host/?ca=/path/ca.pem` with TLS (feature `tls`) |
/// | `etcd://user:password@host:2379,host:2379/locks` | an etcd cluster (feature `etcd`); the path is the prefix of the locks' keys; `etcds://` with TLS (feature `tls`) |
///
/// The SQL stores know the options of libpq and of MySQL's clients (`sslrootcert`, `ssl-mode`, `options` and
/// more), so that a URL works as a hosting provider prints it.
///
/// | option | meaning | default |
/// |---|---|---|
/// | `ttl=30s` | the lease, renewed until the release | 30 s, or the nearest that the store can do |
/// | `label=web-1` | what operators read of this client's holds | `host:pid program` |
/// | `prefix=app:` | the prefix of every name, so that applications can share a store | none |
/// | `timeout=2s` | the longest that one request may take | 2 s |
/// | `outage=30s` | how long opening, and an acquire without a limit, retry while the store cannot be reached | 30 s |
/// | `max_hold=1h` | the longest hold | none |
/// | `poll=5ms..200ms` | the shortest and the longest pause between two polls of a waiter, on stores whose waiters poll | `file:` as shown; `sqlite:` `1ms..200ms`; `redlock:` `5ms..100ms`; others in `lockkit::redis` and `lockkit::sql` |
/// | `queue=fifo` `barging`, `wake=push` `poll` and more | `redis:`, also with Sentinel and Cluster, described in `lockkit::redis` | `fifo`, `push` |
/// | `quarantine=30s`, `token_ttl=7d` and more | `redlock:` and `redis:`, described in `lockkit::redis` | `ttl`, for one server `off`; `7d` |
/// | `table=`, `wake=push` `poll`, `pin=true` and more | SQL stores, described in `lockkit::sql` | |
/// | `root=/locks`, `names=encoded` `raw`, `dialect=curator` `kazoo` and more | `zk:`, described in `lockkit::zk`; `ttl` is the session's | as shown first |
/// | `names=encoded` `raw`, `token_base=0` and more | `etcd:`, described in `lockkit::etcd` | `encoded` |
/// | `allow_network_fs=true` | `file:` and `sqlite:` accept a network file system, for use from one machine only | `false` |
///
/// Durations are whole numbers with a unit: `us`, `ms`, `s`, `m`, `h`, `d`. The path and the values of
/// options are percent-decoded: write `%20` for a blank and `%25` for `%`.
///
/// # Errors
/// - [`Error::InvalidUrl`](crate::Error::InvalidUrl) if the URL does not lead to a store of this build; it says what to write.
/// - [`Error::Unsupported`](crate::Error::Unsupported) if the store cannot honour the lease.
/// - [`Error::InvalidOption`](crate::Error::InvalidOption) if the label is not one short line.
/// - [`Error::InvalidName`](crate::Error::InvalidName) if the prefix has a NUL byte, or leaves no room for a name.
/// - [`Error::Backend`](crate::Error::Backend) if the store refuses this client, or its server could not
///   be reached for the time of `outage` ([`Connect::wait`] sets another time).
/// - [`Error::NoRuntime`](crate::Error::NoRuntime) if it is called outside a Tokio runtime, or in one whose time is not enabled.
///
/// # Cancel safety
/// Cancel safe: at most what opening creates is left behind. That is a directory, a file, a table, the key of a
/// quarantine, or a session that ends by itself.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit::Result<()> {
/// let client = lockkit::connect("memory:?ttl=10s&prefix=shop:").await?;
/// client.lock("stock")?.acquire().await?.release().await?;
///
/// let error = lockkit::connect("memory:?tttl=10s").await.unwrap_err();
/// assert!(error.to_string().contains("did you mean `ttl`?"));
/// # Ok(()) }
/// ```
pub async fn connect(url: impl AsRef<str>) -> Result<LockClient> {
    builder(url).connect().await
}

/// Sets options first. Options in code take precedence over the URL.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit::Result<()> {
/// use std::time::Duration;
/// use lockkit::Lease;
///
/// let client = lockkit::builder("memory:")
///     .lease(Lease::renewed(Duration::from_secs(5)))
///     .connect()
///     .await?;
/// # let _ = client;
/// # Ok(()) }
/// ```
pub fn builder(url: impl AsRef<str>) -> Connect {
    Connect {
        url: url.as_ref().parse(),
        wait: None,
        settings: ClientSettings::default(),
    }
}

/// Options of a connection; made by [`builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `connect`"]
pub struct Connect {
    // Parsed at once, so that `Debug` shows no secret. INV-14.
    url: Result<StoreUrl, InvalidUrl>,
    wait: Option<Duration>,
    settings: ClientSettings,
}

impl Connect {
    /// The lease of locks that set none; in a URL `ttl=`, always renewed.
    pub const fn lease(mut self, lease: Lease) -> Self {
        self.settings.lease = Some(lease);
        self
    }

    /// What operators read of this client's holds; in a URL `label=`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = Some(label.into());
        self
    }

    /// The program in the default label; the name of this one if not set.
    pub fn program(mut self, name: impl Into<String>) -> Self {
        self.settings.program = Some(name.into());
        self
    }

    /// The prefix of every name; in a URL `prefix=`.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.prefix = Some(prefix.into());
        self
    }

    /// The longest hold of locks that set none; in a URL `max_hold=`.
    pub const fn max_hold(mut self, limit: Duration) -> Self {
        self.settings.max_hold = Some(limit);
        self
    }

    /// The longest that one request may take; in a URL `timeout=`.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = Some(timeout);
        self
    }

    /// How long an acquire without a limit retries while the store fails; in a URL `outage=`.
    pub const fn outage(mut self, outage: Duration) -> Self {
        self.settings.outage = Some(outage);
        self
    }

    /// How long [`connect`](Self::connect) retries while the server cannot be reached; the time of
    /// `outage` if not set, and zero for one attempt. Each step of an attempt takes at most the store's
    /// `connect_timeout`.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// The clock of deadlines, of the leases of `memory:`, and of the sessions of etcd and ZooKeeper.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.settings.clock = Some(clock);
        self
    }

    /// Opens the store and makes the client.
    ///
    /// # Errors
    /// As the function [`connect`](fn@connect).
    ///
    /// # Cancel safety
    /// As the function [`connect`](fn@connect).
    pub async fn connect(self) -> Result<LockClient> {
        let mut url = self.url?;
        if Handle::try_current().is_err() {
            return Err(Error::NoRuntime);
        }
        let settings = self.settings.or_from_url(&mut url.options)?;
        let wait = self.wait.or(settings.outage);
        let wait = wait.unwrap_or(ClientSettings::DEFAULT_OUTAGE);
        let ttl = settings.lease.unwrap_or_default().ttl();
        let store = stores::open_within(&url, settings.clock.as_ref(), ttl, wait).await?;
        LockClient::builder_arc(store).with(settings).build()
    }
}
