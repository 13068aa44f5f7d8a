//! What a URL leads to, and the text of every error on the way.

#![expect(clippy::unwrap_used, reason = "a test may fail by a panic")]

use std::sync::Arc;
use std::time::Duration;

use lockkit::clock::ManualClock;
use lockkit::memory::MemoryStore;
use lockkit::url::InvalidUrl;
use lockkit::{Error, Lease, LockClient, LockName};

async fn connect(url: &str) -> LockClient {
    lockkit::connect(url).await.unwrap()
}

async fn error(url: &str) -> Error {
    lockkit::connect(url).await.expect_err(url)
}

#[tokio::test]
async fn each_memory_url_opens_a_store_of_its_own() {
    let (one, two) = (connect("memory:").await, connect("memory:").await);
    assert!(one.store::<MemoryStore>().is_some());
    let guard = one.lock("a").unwrap().acquire().await.unwrap();
    assert!(
        two.lock("a")
            .unwrap()
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
    assert!(
        one.clone()
            .lock("a")
            .unwrap()
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    guard.release().await.unwrap();
}

/// A URL and what its error says.
const CASES: &[(&str, &str)] = &[
    ("", "begins with a scheme, as in `memory:`"),
    ("/var/lib/locks", "begins with a scheme"),
    ("hunter2@h", "begins with a scheme"),
    (
        "oracle://u:hunter2@h",
        "no store has the scheme `oracle`: the schemes are `memory`, `file`, `sqlite`, `redis`,",
    ),
    (
        "reddis://h",
        "no store has the scheme `reddis` (did you mean `redis`?)",
    ),
    (
        "postgress://h",
        "(did you mean `postgres`?): the schemes are `memory`, `file`, `sqlite`, `redis`, `rediss`, `redis+unix`, `redis+sentinel`, `rediss+sentinel`, `redis+cluster`, `rediss+cluster`, `redlock`, `redlocks`, `etcd`, `etcds`, `zk`, `zks`, `postgres`, `mysql`",
    ),
    ("file:~/locks", "write the home directory itself for `~`"),
    ("flie:/x", "(did you mean `file`?)"),
    #[cfg(not(feature = "etcd"))]
    (
        "etcd://u:hunter2@h/",
        "the scheme `etcd` needs the feature `etcd` of the crate",
    ),
    #[cfg(feature = "etcd")]
    (
        "etcd://hunter2@h/",
        "has a user and a password or neither: write `etcd://user:password@host:2379`",
    ),
    #[cfg(feature = "etcd")]
    ("etcd:", "has at least one host"),
    #[cfg(feature = "redis")]
    (
        "redis+sentinel://hunter2:hunter2@h1,h2",
        "the name of their master and perhaps the number of a database: write `redis+sentinel://user:password@host1,host2,host3/mymaster/0`",
    ),
    #[cfg(feature = "redis")]
    ("redis+sentinel:///mymaster", "has the hosts of Sentinels"),
    #[cfg(feature = "redis")]
    (
        "redis+sentinel://h1/mymaster/zero",
        "has the hosts of Sentinels",
    ),
    #[cfg(feature = "redis")]
    (
        "redis+sentinel://h1,,h3/mymaster",
        "host 2 of the URL is empty",
    ),
    #[cfg(feature = "redis")]
    (
        "redis+sentinel://h1/mymaster?sentinel_user=hunter2",
        "has `sentinel_user` only with `sentinel_password`",
    ),
    #[cfg(feature = "redis")]
    (
        "redis://h1?sentinel_password=hunter2",
        "has no option `sentinel_password`",
    ),
    #[cfg(not(feature = "redis"))]
    ("redis+cluster://h1,h2", "needs the feature `redis`"),
    #[cfg(feature = "redis")]
    (
        "redis+cluster://u:hunter2@h1,h2/3",
        "has the hosts of some nodes and no number of a database",
    ),
    #[cfg(feature = "redis")]
    (
        "redlock://hunter2:hunter2@h1,h2,h3,h4",
        "has three or another odd number of hosts and perhaps the number of a database: write `redlock://user:password@host1,host2,host3/0`",
    ),
    #[cfg(feature = "redis")]
    ("redlock://h1", "has three or another odd number of hosts"),
    #[cfg(feature = "redis")]
    ("redlock://h1,h2,h3/x", "perhaps the number of a database"),
    #[cfg(feature = "redis")]
    (
        "redlock://h1,h2,h3?quarantine=off",
        "there is no Redlock without a quarantine",
    ),
    #[cfg(feature = "redis")]
    ("redlock://h1,h2,h3?wake=push", "has no option `wake`"),
    #[cfg(feature = "redis")]
    ("redlock://h1,h2,h3?acks=1", "has no option `acks`"),
    #[cfg(not(feature = "etcd"))]
    ("etcds://h", "needs the feature `etcd`"),
    #[cfg(not(feature = "zk"))]
    ("zk://h1,h2/chroot?root=/l", "needs the feature `zk`"),
    #[cfg(not(feature = "postgres"))]
    ("postgres://u:hunter2@h/db", "needs the feature `postgres`"),
    #[cfg(not(feature = "mysql"))]
    ("mysql://h/db", "needs the feature `mysql`"),
    #[cfg(not(feature = "sqlite"))]
    ("sqlite:locks.db", "needs the feature `sqlite`"),
    (
        "memory:x",
        "a URL of the scheme `memory` has nothing but options",
    ),
    (
        "memory://u:hunter2@",
        "has nothing but options after the colon: write `memory:`",
    ),
    (
        "memory:?poll=1s",
        "the scheme `memory` has no option `poll`: its options are `label`, `max_hold`, `outage`, `prefix`, `timeout`, `ttl`",
    ),
    (
        "memory:?prefx=a",
        "has no option `prefx` (did you mean `prefix`?)",
    ),
    (
        "memory:?password=hunter2",
        "has no option `password`: its options are",
    ),
    (
        "memory:?ttl=30",
        "the option `ttl` cannot be `30`: write a whole number and its unit",
    ),
    ("memory:?timeout=0s", "the option `timeout` cannot be `0`"),
    ("memory:?ttl=1s&ttl=1s", "the option `ttl` is given twice"),
    (
        "memory:?ttl",
        "the option `ttl` has no value: write `ttl=...`",
    ),
    (
        "file:",
        "has a directory and no host: write `file:/var/lib/lockkit`",
    ),
    ("file://locks", "has a directory and no host"),
    ("file:/x?allow_network_fs=yes", "write `true` or `false`"),
    (
        "file:/x?wake=poll",
        "its options are `allow_network_fs`, `label`, `max_hold`, `outage`, `poll`,",
    ),
    ("file:/a b", "write a blank as `%20`"),
];

#[tokio::test]
async fn every_wrong_url_is_an_error_that_says_what_to_do() {
    for (url, expected) in CASES {
        let error = error(url).await;
        assert!(matches!(error, Error::InvalidUrl(_)), "{url}: {error:?}");
        let message = error.to_string();
        assert!(message.contains(expected), "{url}: {message}");
        let shown = format!("{message} {error:?} {:?}", lockkit::builder(url));
        assert!(!shown.contains("hunter2"), "{url}: {shown}");
    }
}

#[tokio::test]
async fn impossible_lease_is_reported_in_the_units_of_urls() {
    let error = error("memory:?ttl=1000d").await.to_string();
    let expected = "the lease cannot be 1000d: the memory store can do 100ms to 1d";
    assert_eq!(error, expected);
    let client = connect("memory:").await;
    let zero = client.lock("a").unwrap().with_max_hold(Duration::ZERO);
    assert!(matches!(zero, Err(Error::InvalidOption { .. })), "{zero:?}");
}

#[tokio::test]
async fn options_that_the_client_refuses_are_errors() {
    assert!(matches!(
        error("memory:?ttl=1us").await,
        Error::Unsupported { .. }
    ));
    let long = format!("memory:?prefix={}", "x".repeat(512));
    assert!(matches!(error(&long).await, Error::InvalidName(_)));
    let absent = InvalidUrl::feature_off("redis", "redis");
    assert_eq!(
        absent.to_string(),
        "the scheme `redis` needs the feature `redis` of the crate `lockkit`: enable it in Cargo.toml"
    );
}

#[test]
fn connect_outside_a_runtime_returns_no_runtime() {
    for url in [
        "memory:",
        "redis://h",
        "etcd://h",
        "zk://h",
        "postgres://h/d",
        "sqlite:/x",
    ] {
        let answer = polled_once(lockkit::connect(url));
        let refused = matches!(answer, std::task::Poll::Ready(Err(Error::NoRuntime)));
        assert!(refused, "{url}");
    }
}

/// Also where the builder of a store is called itself.
#[test]
fn builder_outside_a_runtime_returns_an_error() {
    let zk = lockkit::zk::ZkStore::builder()
        .host("127.0.0.1", 1)
        .connect();
    let sqlite = lockkit::sql::SqlStoreBuilder::<lockkit::sql::Sqlite>::file("/x").connect();
    let outcomes = [
        polled_once(zk).map(|it| it.err().map(|error| error.outcome())),
        polled_once(sqlite).map(|it| it.err().map(|error| error.outcome())),
    ];
    let refused = std::task::Poll::Ready(Some(lockkit::Outcome::Rejected));
    assert_eq!(outcomes, [refused; 2]);
}

/// Polls by hand, outside a runtime.
fn polled_once<T>(future: impl Future<Output = T>) -> std::task::Poll<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::pin!(future).poll(&mut context)
}

#[tokio::test]
async fn prefix_precedes_every_name() {
    let client = connect("memory:?prefix=shop:").await;
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    assert_eq!(guard.name().as_str(), "a");
    let store = client.store::<MemoryStore>().unwrap();
    let listed = lockkit::DistributedLock::list(store, "").await.unwrap();
    assert_eq!(listed[0].name.as_str(), "shop:a");
    guard.release().await.unwrap();
}

/// The lease of the URL, and of code that wins over it, seen at the guard.
#[tokio::test]
async fn options_in_code_override_the_url() {
    let clock = Arc::new(ManualClock::new());
    let builder = lockkit::builder("memory:?ttl=10s&prefix=url:").clock(clock);
    for (connect, lease, name) in [
        (builder.clone(), 10, "url:a"),
        (
            builder
                .lease(Lease::fixed(Duration::from_secs(20)))
                .prefix("code:"),
            20,
            "code:a",
        ),
    ] {
        let client = connect.connect().await.unwrap();
        let guard = client.lock("a").unwrap().acquire().await.unwrap();
        assert_eq!(guard.ticket().ttl, Duration::from_secs(lease));
        assert_eq!(guard.remaining(), Duration::from_secs(lease) * 99 / 100);
        let store = client.store::<MemoryStore>().unwrap();
        let listed = lockkit::DistributedLock::list(store, "").await.unwrap();
        assert_eq!(listed[0].name.as_str(), name);
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn clock_applies_to_the_memory_store() {
    let clock = Arc::new(ManualClock::new());
    let connect = lockkit::builder("memory:?ttl=10s").clock(Arc::<ManualClock>::clone(&clock));
    let client = connect.connect().await.unwrap();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    let store = client.store::<MemoryStore>().unwrap();
    assert_eq!(
        lockkit::DistributedLock::list(store, "")
            .await
            .unwrap()
            .len(),
        1
    );
    clock.advance(Duration::from_secs(10));
    assert!(guard.check().is_err());
    assert!(
        lockkit::DistributedLock::list(store, "")
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn any_text_can_name_a_lock() {
    let client = connect("memory:").await;
    let name: LockName = "orders/42".parse().unwrap();
    let text = String::from(name.clone());
    let guard = client.lock("orders/42").unwrap().acquire().await.unwrap();
    for lock in [
        client.lock(&text),
        client.lock(&name),
        client.lock(name.clone()),
        client.lock(text.clone()),
    ] {
        assert!(lock.unwrap().try_acquire().await.unwrap().is_none());
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn longest_hold_comes_from_the_url() {
    let client = connect("memory:?max_hold=100ms").await;
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    let lost = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await;
    assert_eq!(lost.unwrap(), lockkit::LossReason::MaxHold);
}

#[cfg(unix)]
mod file {
    use super::*;
    use lockkit::file::FileStore;

    #[tokio::test]
    async fn two_clients_of_one_directory_exclude_each_other() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("of the locks");
        let url = format!(
            "file:{}?poll=1ms..5ms",
            dir.display().to_string().replace(' ', "%20")
        );
        let (one, two) = (connect(&url).await, connect(&url).await);
        assert_eq!(one.store::<FileStore>().unwrap().dir(), dir);
        let poll = one.backend().capabilities().poll;
        assert_eq!(
            (poll.min, poll.max),
            (Duration::from_millis(1), Duration::from_millis(5))
        );

        let guard = one.lock("orders/42").unwrap().acquire().await.unwrap();
        let lock = two.lock("orders/42").unwrap();
        assert!(lock.try_acquire().await.unwrap().is_none());
        let token = guard.token();
        let waiting = lock.acquire();
        let (released, next) = tokio::join!(guard.release(), waiting);
        released.unwrap();
        let next = next.unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
    }

    /// A break reaches the holder with its next renewal.
    #[tokio::test]
    async fn broken_lock_is_lost() {
        let place = tempfile::tempdir().unwrap();
        let url = format!("file:{}?ttl=3s", place.path().display());
        let (one, two) = (connect(&url).await, connect(&url).await);
        let guard = one.lock("a").unwrap().acquire().await.unwrap();
        let broken = two.lock("a").unwrap().break_lock().await.unwrap().unwrap();
        assert!(
            broken.holder_ids().eq([guard.holder().to_string()]),
            "{broken:?}"
        );
        let lost = tokio::time::timeout(Duration::from_secs(10), guard.lost()).await;
        assert_eq!(lost.unwrap(), lockkit::LossReason::Superseded);
        assert!(
            two.lock("a")
                .unwrap()
                .try_acquire()
                .await
                .unwrap()
                .is_some()
        );
        drop(guard);
        one.drain().await;
        two.drain().await;
    }

    #[tokio::test]
    async fn directory_that_cannot_be_created_is_an_error_of_the_store() {
        for (url, expected) in [
            (
                "file:/dev/null/locks",
                "open of the file store failed: `/dev/null/locks`: Not a directory",
            ),
            ("file:/dev/null", "`/dev/null` is not a directory"),
        ] {
            let error = error(url).await;
            assert!(matches!(error, Error::Backend(_)), "{error:?}");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
