//! Which store serves which scheme. The one place that knows all stores.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::clock::Clock;
#[cfg(unix)]
use lockkit_core::file::FileStore;
use lockkit_core::memory::MemoryStore;
use lockkit_core::store::Backoff;
use lockkit_core::url::{InvalidUrl, StoreUrl};
use lockkit_core::{DistributedLock, Error, Outcome, Result};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use lockkit_sql::SqlStoreBuilder;
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

/// A store that is being opened.
type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn DistributedLock>>> + Send + 'a>>;

/// Opens the store, and retries for `wait` while its server cannot be reached.
pub(crate) async fn open_within(
    url: &StoreUrl,
    clock: Option<&Arc<dyn Clock>>,
    ttl: Duration,
    wait: Duration,
) -> Result<Arc<dyn DistributedLock>> {
    let began = Instant::now();
    let mut failed = match open(url.clone(), clock, ttl).await {
        Err(Error::Backend(error)) if !EMBEDDED.contains(&url.scheme()) => error,
        ended => return ended,
    };
    let again = async {
        let mut backoff = Backoff::default();
        while failed.outcome() != Outcome::Rejected {
            sleep(backoff.pause()).await;
            match open(url.clone(), clock, ttl).await {
                Err(Error::Backend(error)) => failed = error,
                ended => return Some(ended),
            }
        }
        None
    };
    // The first attempt ended by itself, the others end with the wait.
    let ended = timeout(wait.saturating_sub(began.elapsed()), again).await;
    ended.ok().flatten().unwrap_or(Err(failed.into()))
}

/// Opens the store of a URL whose client options were taken. Reports unknown options before it opens
/// anything. `ttl` is the lease that the client will ask for: a store with session leases gives it to the
/// session.
#[cfg_attr(
    not(any(feature = "redis", feature = "zk")),
    expect(unused_variables, reason = "no other store needs the lease")
)]
fn open(mut url: StoreUrl, clock: Option<&Arc<dyn Clock>>, ttl: Duration) -> Opening<'_> {
    Box::pin(async move {
        let url = &mut url;
        // A store joins here with one arm for its schemes, under `#[cfg(feature = "...")]`.
        let store: Arc<dyn DistributedLock> = match url.scheme() {
            "memory" => Arc::new(memory(url, clock)?),
            #[cfg(unix)]
            "file" => Arc::new(file(url)?),
            #[cfg(feature = "redis")]
            "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "rediss+sentinel"
            | "redis+cluster" | "rediss+cluster" => {
                let builder = lockkit_redis::RedisStoreBuilder::from_url(url)?;
                Arc::new(builder.ttl(ttl).connect().await?)
            }
            #[cfg(feature = "redis")]
            "redlock" | "redlocks" => {
                let builder = lockkit_redis::RedlockStoreBuilder::from_url(url)?;
                Arc::new(builder.ttl(ttl).connect().await?)
            }
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
            "mysql" => sql(SqlStoreBuilder::<lockkit_sql::Mysql>::from_url(url)?).await?,
            #[cfg(feature = "postgres")]
            "postgres" => sql(SqlStoreBuilder::<lockkit_sql::Postgres>::from_url(url)?).await?,
            #[cfg(feature = "sqlite")]
            "sqlite" => sql(SqlStoreBuilder::<lockkit_sql::Sqlite>::from_url(url)?).await?,
            #[cfg(feature = "zk")]
            "zk" | "zks" => {
                let mut builder = lockkit_zk::ZkStoreBuilder::from_url(url)?;
                if let Some(clock) = clock {
                    builder = builder.clock(Arc::clone(clock));
                }
                Arc::new(builder.session(ttl).connect().await?)
            }
            other => return Err(absent(other).into()),
        };
        Ok(store)
    })
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
async fn sql<D: lockkit_sql::Dialect>(
    builder: SqlStoreBuilder<D>,
) -> Result<Arc<dyn DistributedLock>> {
    Ok(Arc::new(builder.connect().await?))
}

/// Why no arm above serves a scheme.
fn absent(scheme: &str) -> InvalidUrl {
    match SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some((_, Some(feature))) => InvalidUrl::feature_off(scheme, feature),
        // Only where the system has no lock files.
        Some((_, None)) => InvalidUrl::new(format!(
            "the scheme `{scheme}` does not work on this operating system"
        )),
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
