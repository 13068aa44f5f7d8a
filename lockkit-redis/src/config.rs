//! Where the server is, and how the store behaves.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lockkit_core::url::{InvalidUrl, StoreUrl};
use lockkit_core::{BackendError, Capabilities, PollRange, Queueing, Waiting};

use crate::backend::RedisStore;

const PORT: u16 = 6379;
/// The token must outlive the longest lease; its end is set anew once a day.
const TWO_DAYS: Duration = Duration::from_secs(2 * 86_400);
const WEEK: Duration = Duration::from_secs(7 * 86_400);

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
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

/// How long the token of a lock that nobody uses is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenTtl {
    /// For so long, or a day less, after its last use, but at least two days; for ever where the
    /// server evicts keys with an end first.
    After(Duration),
    /// For ever: for names that are shared with Redisson's `RFencedLock`.
    Never,
}

/// The options of a [`RedisStore`].
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
    pub(crate) tls: bool,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: i64,
    pub(crate) protocol: Protocol,
    pub(crate) queueing: Queueing,
    pub(crate) waiting: Waiting,
    pub(crate) poll: PollRange,
    pub(crate) recheck: Duration,
    pub(crate) token_ttl: TokenTtl,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<crate::RedisMutant>,
}

impl RedisStoreBuilder {
    pub(crate) fn new() -> Self {
        let defaults = Capabilities::new();
        Self {
            address: Address::Tcp {
                host: "127.0.0.1".into(),
                port: PORT,
            },
            tls: false,
            ca: None,
            user: None,
            password: None,
            database: 0,
            protocol: Protocol::Auto,
            queueing: Queueing::Fifo,
            waiting: Waiting::Push,
            poll: defaults.poll,
            recheck: defaults.recheck,
            token_ttl: TokenTtl::After(WEEK),
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(2),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// Reads `redis://`, `rediss://` and `redis+unix://`, whose client options were taken before.
    ///
    /// | option | meaning | default |
    /// |---|---|---|
    /// | `queue=fifo` `barging` | the order of waiters | `fifo` |
    /// | `wake=push` `poll` | how waiters learn of a free lock; `poll` sends no command of publish and subscribe, and its waiters barge | `push` |
    /// | `poll=50ms..1s` | with `wake=poll`, the pauses between two looks | as shown |
    /// | `recheck=3s` | a waiter looks at least so often, whatever it was told | as shown |
    /// | `protocol=auto` `resp2` `resp3` | the protocol; with `wake=poll` always RESP2 | `auto` |
    /// | `token_ttl=7d` `never` | how long an unused token is kept | `7d` |
    /// | `connect_timeout=2s` | the longest that connecting may take | as shown |
    /// | `response_timeout=2s` | after half of it without any answer a connection is replaced | as shown |
    /// | `ca=/path.pem` | `rediss:` the certificates to trust instead of the system's | none |
    /// | `db=3` | `redis+unix:` the number of the database | `0` |
    ///
    /// # Errors
    /// - [`InvalidUrl`] if an option or a part of the URL is not understood.
    pub fn from_url(url: &mut StoreUrl) -> Result<Self, InvalidUrl> {
        let mut this = Self::new();
        this.take_behaviour(url)?;
        let unix = url.scheme() == "redis+unix";
        this.tls = url.scheme() == "rediss";
        this.ca = url.options.text("ca").filter(|_| this.tls).map(Into::into);
        let number = if unix {
            url.options.number("db")?
        } else {
            None
        };
        url.options.finish()?;
        this.user = url.user().map(Into::into);
        this.password = url.password().map(Into::into);
        if unix {
            url.expect(
                url.hosts().is_empty() && url.path().len() > 1,
                "has the path of a socket and no host: write `redis+unix:///run/redis.sock`",
            )?;
            this.address = Address::Unix(url.path().into());
            this.database = number.and_then(|n| i64::try_from(n).ok()).unwrap_or(0);
            return Ok(this);
        }
        let expected = "has one host and perhaps the number of a database: write `redis://user:password@host:6379/0`";
        let [host] = url.hosts() else {
            url.expect(url.hosts().is_empty(), expected)?;
            return Err(InvalidUrl::Shape {
                scheme: url.scheme().to_owned(),
                expected,
            });
        };
        this.address = Address::Tcp {
            host: host.name().to_owned(),
            port: host.port().unwrap_or(PORT),
        };
        let path = url.path().trim_matches('/');
        let database = if path.is_empty() {
            Some(0)
        } else {
            path.parse::<u32>().ok()
        };
        url.expect(database.is_some(), expected)?;
        this.database = database.unwrap_or(0).into();
        Ok(this)
    }

    fn take_behaviour(&mut self, url: &mut StoreUrl) -> Result<(), InvalidUrl> {
        let options = &mut url.options;
        let queue = options.choice(
            "queue",
            &[("fifo", Queueing::Fifo), ("barging", Queueing::Barging)],
        )?;
        let wake = options.choice("wake", &[("push", Waiting::Push), ("poll", Waiting::Poll)])?;
        if wake == Some(Waiting::Poll) {
            if queue == Some(Queueing::Fifo) {
                let why = "leave it out: waiters that poll keep no order";
                return Err(InvalidUrl::bad_value("queue", "fifo", why));
            }
            self.waiting = Waiting::Poll;
            self.queueing = Queueing::Barging;
        }
        self.queueing = queue.unwrap_or(self.queueing);
        self.poll = options.poll("poll")?.unwrap_or(self.poll);
        self.protocol = options
            .choice(
                "protocol",
                &[
                    ("auto", Protocol::Auto),
                    ("resp2", Protocol::Resp2),
                    ("resp3", Protocol::Resp3),
                ],
            )?
            .unwrap_or(self.protocol);
        for (name, field) in [
            ("recheck", &mut self.recheck),
            ("connect_timeout", &mut self.connect_timeout),
            ("response_timeout", &mut self.response_timeout),
        ] {
            match options.duration(name)? {
                Some(Duration::ZERO) => {
                    return Err(InvalidUrl::bad_value(
                        name,
                        "0",
                        "it must be longer than nothing",
                    ));
                }
                Some(duration) => *field = duration,
                None => {}
            }
        }
        self.token_ttl = match options.text("token_ttl").as_deref() {
            None => self.token_ttl,
            Some("never") => TokenTtl::Never,
            Some(text) => match lockkit_core::url::parse_duration(text) {
                Ok(ttl) if ttl >= TWO_DAYS => TokenTtl::After(ttl),
                _ => {
                    let why = "write a duration of at least two days, as `7d`, or `never`";
                    return Err(InvalidUrl::bad_value("token_ttl", text, why));
                }
            },
        };
        Ok(())
    }

    /// A server on TCP; 127.0.0.1 and port 6379 if nothing is set.
    pub fn tcp(mut self, host: impl Into<String>, port: u16) -> Self {
        self.address = Address::Tcp {
            host: host.into(),
            port,
        };
        self
    }

    /// A server on a Unix socket.
    pub fn unix(mut self, path: impl Into<PathBuf>) -> Self {
        self.address = Address::Unix(path.into());
        self
    }

    /// TLS on TCP; `ca` is a file of certificates to trust instead of the system's.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, ca: Option<PathBuf>) -> Self {
        self.tls = true;
        self.ca = ca;
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

    /// Waiters poll, at these pauses, and keep no order; no command of publish and subscribe is sent.
    pub const fn poll(mut self, pauses: PollRange) -> Self {
        self.waiting = Waiting::Poll;
        self.queueing = Queueing::Barging;
        self.poll = pauses;
        self
    }

    /// The longest time between two looks of a waiter.
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

    /// The longest that connecting may take.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// After half of this time without any answer a connection is replaced.
    pub const fn response_timeout(mut self, timeout: Duration) -> Self {
        self.response_timeout = timeout;
        self
    }

    /// Breaks a promise on purpose, to test the conformance suite.
    #[cfg(feature = "mutants")]
    pub const fn mutant(mut self, mutant: crate::RedisMutant) -> Self {
        self.mutant = Some(mutant);
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// - [`BackendError`] if the server cannot be reached or refuses this user.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing stays behind.
    pub async fn connect(self) -> Result<RedisStore, BackendError> {
        RedisStore::connect(self).await
    }

    /// What the store will be able to do.
    #[must_use]
    pub const fn capabilities(&self) -> Capabilities {
        // A poller that would take a place with FIFO order could keep it for its whole pause.
        let queueing = match self.waiting {
            Waiting::Push => self.queueing,
            _ => Queueing::Barging,
        };
        Capabilities::new()
            .with_queueing(queueing)
            .with_waiting(self.waiting)
            .with_poll(self.poll)
            .with_recheck(self.recheck)
    }
}

/// Shows neither user nor password. INV-14.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("address", &self.address)
            .field("tls", &self.tls)
            .field("database", &self.database)
            .field("queueing", &self.queueing)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RedisStoreBuilder, InvalidUrl> {
        let mut url: StoreUrl = text.parse()?;
        RedisStoreBuilder::from_url(&mut url)
    }

    #[test]
    fn every_part_of_a_url_arrives() {
        let all = read(
            "redis://app:p%40ss@h:7000/3?queue=barging&poll=1ms..2ms&recheck=1s&protocol=resp2\
             &token_ttl=never&connect_timeout=3s&response_timeout=4s",
        )
        .unwrap();
        let address = Address::Tcp {
            host: "h".into(),
            port: 7000,
        };
        assert_eq!(all.address, address);
        assert_eq!(all.user.as_deref(), Some("app"));
        assert_eq!(all.password.as_deref(), Some("p@ss"));
        assert_eq!((all.database, all.tls), (3, false));
        assert_eq!(all.queueing, Queueing::Barging);
        assert_eq!(all.poll.max, Duration::from_millis(2));
        assert_eq!(all.recheck, Duration::from_secs(1));
        assert_eq!(all.protocol, Protocol::Resp2);
        assert_eq!(all.token_ttl, TokenTtl::Never);
        assert_eq!(all.connect_timeout, Duration::from_secs(3));
        assert_eq!(all.response_timeout, Duration::from_secs(4));

        let poll = read("rediss://h/?wake=poll&ca=/ca.pem").unwrap();
        assert_eq!(poll.capabilities().waiting, Waiting::Poll);
        assert_eq!(poll.capabilities().queueing, Queueing::Barging);
        assert_eq!((poll.tls, poll.ca), (true, Some("/ca.pem".into())));

        let unix = read("redis+unix:///run/redis.sock?db=2").unwrap();
        assert_eq!(unix.address, Address::Unix("/run/redis.sock".into()));
        assert_eq!(unix.database, 2);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "redis://",
            "redis://a,b",
            "redis://h/x",
            "redis://h/?db=2",
            "redis://h/?wake=maybe",
            "redis://h/?wake=poll&queue=fifo",
            "redis://h/?recheck=0s",
            "redis://h/?token_ttl=1d",
            "redis+unix://h/run/redis.sock",
            "redis+unix:",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", read("redis://us3r:s3cret@h").unwrap());
        assert!(
            !shown.contains("us3r") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}
