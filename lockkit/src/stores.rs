//! Which store serves which scheme. The one place that knows all stores.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::Clock;
#[cfg(unix)]
use lockkit_core::file::FileStore;
use lockkit_core::memory::MemoryStore;
use lockkit_core::store::Backoff;
use lockkit_core::url::{InvalidUrl, StoreUrl, parse_duration};
use lockkit_core::{BackendError, DistributedLock, Error, Outcome, Result};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use lockkit_sql::SqlStoreBuilder;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

/// Every scheme of the grammar and the Cargo feature that brings its store; `None` for those that
/// are always there. `cargo x tidy` looks for each of them in the tables of the documentation.
const SCHEMES: &[(&str, Option<&str>)] = &[
    ("memory", None),
    ("file", None),
    ("sqlite", Some("sqlite")),
    ("redis", Some("redis")),
    ("rediss", Some("redis")),
    ("redis+unix", Some("redis")),
    ("redis+sentinel", Some("redis")),
    ("rediss+sentinel", Some("redis")),
    ("redis+cluster", Some("redis")),
    ("rediss+cluster", Some("redis")),
    ("redlock", Some("redis")),
    ("redlocks", Some("redis")),
    ("etcd", Some("etcd")),
    ("etcds", Some("etcd")),
    ("zk", Some("zk")),
    ("zks", Some("zk")),
    ("postgres", Some("postgres")),
    ("mysql", Some("mysql")),
];

/// Stores without a server: they open at once or not at all.
const EMBEDDED: &[&str] = &["memory", "file", "sqlite"];

/// A store may take so long to connect, whatever its own limit. The longest default is that of ZooKeeper.
const CONNECT: Duration = Duration::from_secs(5);

/// How long opening may take.
pub(crate) struct Limits {
    /// How long it is retried.
    pub(crate) wait: Duration,
    /// The longest that one request may take.
    pub(crate) timeout: Duration,
}

/// Opens the store, and retries for the time of `wait` while its server cannot be reached.
pub(crate) async fn open_within(
    url: &StoreUrl,
    clock: Option<&Arc<dyn Clock>>,
    ttl: Option<Duration>,
    limits: Limits,
) -> Result<Arc<dyn DistributedLock>> {
    let began = Instant::now();
    let attempt = || Box::pin(open_once(url, clock, ttl, limits.timeout));
    let mut failed = match attempt().await {
        Err(Error::Backend(error)) if !EMBEDDED.contains(&url.scheme()) => error,
        ended => return ended,
    };
    let again = async {
        let mut backoff = Backoff::default();
        while failed.outcome() != Outcome::Rejected {
            sleep(backoff.pause()).await;
            match attempt().await {
                Err(Error::Backend(error)) => failed = error,
                ended => return Some(ended),
            }
        }
        None
    };
    // The first attempt has its own limit, the others end with the wait too.
    let ended = timeout(limits.wait.saturating_sub(began.elapsed()), again).await;
    ended.ok().flatten().unwrap_or(Err(failed.into()))
}

/// Opens the store. An attempt ends even if the server falls silent at any point of it.
async fn open_once(
    url: &StoreUrl,
    clock: Option<&Arc<dyn Clock>>,
    ttl: Option<Duration>,
    answer: Duration,
) -> Result<Arc<dyn DistributedLock>> {
    let opening = open(url.clone(), clock, ttl);
    if EMBEDDED.contains(&url.scheme()) {
        return opening.await;
    }
    if Handle::try_current().is_err() {
        return Err(Error::NoRuntime);
    }
    let limit = connect_timeout(url).max(CONNECT).saturating_add(answer);
    match timeout(limit, opening).await {
        Ok(opened) => opened,
        Err(_) => Err(silent(url, limit).into()),
    }
}

/// The `connect_timeout` of a URL, which is a number of seconds in those of libpq.
fn connect_timeout(url: &StoreUrl) -> Duration {
    let text = url.options.clone().text("connect_timeout");
    let text = text.unwrap_or_default();
    let seconds = text.parse().map(Duration::from_secs);
    // A store refuses what is neither.
    seconds.unwrap_or_else(|_| parse_duration(&text).unwrap_or_default())
}

/// The failure of an attempt to which no answer came. It may have created a table.
fn silent(url: &StoreUrl, limit: Duration) -> BackendError {
    let scheme = SCHEMES.iter().find(|(known, _)| *known == url.scheme());
    let backend = scheme.and_then(|(_, feature)| *feature).unwrap_or("lock");
    let hosts: Vec<_> = url.hosts().iter().map(ToString::to_string).collect();
    let place = match (hosts.is_empty(), url.scheme()) {
        (false, _) => format!(" ({})", hosts.join(",")),
        (true, "redis+unix") => format!(" ({})", url.path()),
        (true, _) => String::new(),
    };
    let why = format!("no answer within {limit:?}{place}");
    BackendError::new(backend, "connect", Outcome::Indeterminate, why)
}

/// Opens the store of a URL whose client options were taken. Reports unknown options before it opens
/// anything. `ttl` is the lease that the client will ask for: a store with session leases gives it to the
/// session.
#[cfg_attr(
    not(any(
        feature = "etcd",
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "sqlite",
        feature = "zk"
    )),
    expect(
        clippy::unused_async,
        reason = "stores without a server open without waiting"
    )
)]
#[cfg_attr(
    not(any(feature = "redis", feature = "zk")),
    expect(unused_variables, reason = "no other store needs the lease")
)]
async fn open(
    mut url: StoreUrl,
    clock: Option<&Arc<dyn Clock>>,
    ttl: Option<Duration>,
) -> Result<Arc<dyn DistributedLock>> {
    let url = &mut url;
    // A store joins here with one arm for its schemes, under `#[cfg(feature = "...")]`.
    Ok(match url.scheme() {
        "memory" => Arc::new(memory(url, clock)?),
        #[cfg(unix)]
        "file" => Arc::new(file(url)?),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
        | "redis+cluster" | "rediss+cluster" => {
            let mut builder = lockkit_redis::RedisStoreBuilder::from_url(url)?;
            if let Some(ttl) = ttl {
                builder = builder.ttl(ttl);
            }
            Arc::new(builder.connect().await?)
        }
        #[cfg(feature = "redis")]
        "redlock" | "redlocks" => Arc::new(redlock(url, ttl)?.connect().await?),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => {
            let mut builder = lockkit_etcd::EtcdStoreBuilder::from_url(url)?;
            // Leases of a session are measured here, so that both must read the same clock.
            if let Some(clock) = clock {
                builder = builder.clock(Arc::clone(clock));
            }
            Arc::new(builder.connect().await?)
        }
        #[cfg(feature = "mysql")]
        "mysql" => Arc::new(
            SqlStoreBuilder::<lockkit_sql::Mysql>::from_url(url)?
                .connect()
                .await?,
        ),
        #[cfg(feature = "postgres")]
        "postgres" => Arc::new(
            SqlStoreBuilder::<lockkit_sql::Postgres>::from_url(url)?
                .connect()
                .await?,
        ),
        #[cfg(feature = "sqlite")]
        "sqlite" => Arc::new(
            SqlStoreBuilder::<lockkit_sql::Sqlite>::from_url(url)?
                .connect()
                .await?,
        ),
        #[cfg(feature = "zk")]
        "zk" | "zks" => {
            let mut builder = lockkit_zk::ZkStoreBuilder::from_url(url)?;
            if let Some(clock) = clock {
                builder = builder.clock(Arc::clone(clock));
            }
            if let Some(ttl) = ttl {
                builder = builder.session(ttl);
            }
            Arc::new(builder.connect().await?)
        }
        other => return Err(absent(other).into()),
    })
}

#[cfg(feature = "redis")]
fn redlock(
    url: &mut StoreUrl,
    ttl: Option<Duration>,
) -> Result<lockkit_redis::RedlockStoreBuilder> {
    let builder = lockkit_redis::RedlockStoreBuilder::from_url(url)?;
    Ok(match ttl {
        Some(ttl) => builder.ttl(ttl),
        None => builder,
    })
}

/// Why no arm above serves a scheme.
fn absent(scheme: &str) -> InvalidUrl {
    match SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some((_, Some(feature))) => InvalidUrl::FeatureOff {
            scheme: scheme.to_owned(),
            feature,
        },
        // Only where the system has no lock files.
        Some((_, None)) => InvalidUrl::UnsupportedHere {
            scheme: scheme.to_owned(),
        },
        None => {
            let known = SCHEMES.iter().map(|(scheme, _)| *scheme);
            let known: Vec<&str> = known.collect();
            InvalidUrl::unknown_scheme(scheme, &known)
        }
    }
}

fn memory(url: &mut StoreUrl, clock: Option<&Arc<dyn Clock>>) -> Result<MemoryStore> {
    url.options.finish()?;
    url.expect(
        url.is_bare() && url.path().is_empty(),
        "has nothing but options after the colon: write `memory:`",
    )?;
    let mut builder = MemoryStore::builder();
    if let Some(clock) = clock {
        builder = builder.clock(Arc::clone(clock));
    }
    Ok(builder.build())
}

#[cfg(unix)]
fn file(url: &mut StoreUrl) -> Result<FileStore> {
    let poll = url.options.poll("poll")?;
    let allow_network_fs = url.options.flag("allow_network_fs")?.unwrap_or(false);
    url.options.finish()?;
    url.expect(
        url.is_bare() && !url.path().is_empty(),
        "has a directory and no host: write `file:/var/lib/lockkit`, or `file:locks` for a directory inside the working directory",
    )?;
    url.expect(
        !url.path().starts_with('~'),
        "has a path that no shell reads: write the home directory itself for `~`",
    )?;
    let mut builder = FileStore::builder(url.path()).allow_network_fs(allow_network_fs);
    if let Some(poll) = poll {
        builder = builder.poll(poll);
    }
    Ok(builder.build()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_timeout_is_read_as_a_duration_or_in_seconds() {
        for (url, seconds) in [
            ("postgres://h/?connect_timeout=10", 10),
            ("etcd://h/?connect_timeout=7s", 7),
            ("redis://h/?connect_timeout=soon", 0),
            ("redis://h/", 0),
        ] {
            let limit = connect_timeout(&url.parse().unwrap());
            assert_eq!(limit, Duration::from_secs(seconds), "{url}");
        }
    }

    #[test]
    fn silence_is_told_with_its_place_and_no_secret() {
        for (url, expected) in [
            (
                "postgres://me:hunter2@h1:5432,h2/d?sslpassword=hunter2",
                "connect of the postgres store failed: no answer within 7s (h1:5432,h2)",
            ),
            (
                "redis+unix:///run/redis.sock",
                "connect of the redis store failed: no answer within 7s (/run/redis.sock)",
            ),
            (
                "mysql:///d?socket=/run/my.sock",
                "connect of the mysql store failed: no answer within 7s",
            ),
        ] {
            let error = silent(&url.parse().unwrap(), Duration::from_secs(7));
            assert_eq!(Error::from(error).to_string(), expected, "{url}");
        }
    }
}
