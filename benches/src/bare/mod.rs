//! The store without a lock library: the least that its own operations can do.
//!
//! A store joins with one file here and one line in [`open`].

#[cfg(feature = "etcd")]
mod etcd;
mod file;
#[cfg(feature = "redis")]
mod majority;
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "zk")]
mod zk;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit::url::StoreUrl;

#[cfg(feature = "peers")]
pub(crate) use postgres::options as postgres_options;

use crate::counter::Counter;
use crate::failure::{Failure, Outcome};
use crate::turns::Taken;

/// A line of a report: a name and its value.
pub type Fact = (String, String);

/// What a store's own operations are, in the words of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    /// One cycle without contention: take and give back.
    pub(crate) cycle: &'static str,
    /// One turn among several contenders.
    pub(crate) turn: &'static str,
    /// How the lock of a killed program becomes free.
    pub(crate) recovery: &'static str,
    /// What a hold is.
    pub(crate) hold: &'static str,
}

/// The bare operations of one store, over a connection of one program.
#[async_trait]
pub(crate) trait Bare: Debug + Send + Sync {
    /// What the operations are.
    fn words(&self) -> Words;

    /// Server, client library and the settings that decide about durability and speed.
    async fn facts(&self) -> Outcome<Vec<Fact>>;

    /// Takes `name` and gives it back. Any number of tasks call it, for different names.
    async fn cycle(&self, name: &str) -> Outcome;

    /// Makes contender `number` of several that take turns at `name`, in any number of processes.
    async fn contender(&self, name: &str, number: usize) -> Outcome<Box<dyn Contender>>;

    /// A number of this name, if the store has sections.
    fn counter(&self, _name: &str) -> Option<Box<dyn Counter>> {
        None
    }

    /// Takes `name` for `ttl`, or for as long as the program runs and the returned value exists.
    async fn take(&self, name: &str, ttl: Duration) -> Outcome<Box<dyn Any + Send + Sync>>;

    /// Waits until `name` can be taken, and takes it.
    async fn wait_for(&self, name: &str) -> Outcome;

    /// Takes all of `names`, each as [`take`](Self::take) does.
    async fn take_all(
        &self,
        names: &[String],
        ttl: Duration,
    ) -> Outcome<Vec<Box<dyn Any + Send + Sync>>> {
        let mut taken = Vec::with_capacity(names.len());
        for name in names {
            taken.push(self.take(name, ttl).await?);
        }
        Ok(taken)
    }

    /// Keeps all of `names` for another `ttl`. Does nothing where a hold needs no renewal.
    async fn keep_all(&self, names: &[String], ttl: Duration) -> Outcome;

    /// Removes all names that begin with `prefix`, including the store's locks.
    async fn sweep(&self, prefix: &str) -> Outcome;
}

/// What a store returns that has tried to take `name`.
#[cfg(feature = "redis")]
fn holding(taken: bool, name: &str) -> Outcome<Box<dyn Any + Send + Sync>> {
    match taken {
        true => Ok(Box::new(())),
        false => Err(Failure::new(format!("another program uses the key {name}"))),
    }
}

/// Tries every millisecond until it has the lock.
#[cfg(any(feature = "redis", feature = "sqlite"))]
async fn poll<F: Future<Output = Outcome<bool>> + Send>(
    try_take: impl Fn() -> F + Send + Sync,
) -> Outcome {
    while !try_take().await? {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// One of several contenders.
#[async_trait]
pub(crate) trait Contender: Send {
    /// Waits for the lock, takes it, records the time and gives it back.
    async fn turn(&mut self, taken: &mut Taken) -> Outcome;
}

/// Opens the bare operations of the store that a URL names.
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
pub(crate) async fn open(url: &str) -> Outcome<Arc<dyn Bare>> {
    let url: StoreUrl = url.parse()?;
    Ok(match url.scheme() {
        "memory" => Arc::new(memory::Memory::default()),
        "file" => Arc::new(file::Files::open(&url)?),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" => Arc::new(redis::Redis::open(&url).await?),
        #[cfg(feature = "redis")]
        "redlock" | "redlocks" => Arc::new(majority::Majority::open(&url).await?),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => Arc::new(etcd::Cluster::open(&url).await?),
        #[cfg(feature = "zk")]
        "zk" | "zks" => Arc::new(zk::Ensemble::open(&url).await?),
        #[cfg(feature = "postgres")]
        "postgres" => Arc::new(postgres::Database::open(&url).await?),
        #[cfg(feature = "mysql")]
        "mysql" => Arc::new(mysql::Database::open(&url).await?),
        #[cfg(feature = "sqlite")]
        "sqlite" => Arc::new(sqlite::File::open(&url).await?),
        other => {
            let message = format!("the bench knows no bare operations of `{other}:`");
            return Err(Failure::new(message));
        }
    })
}

/// The word for a missing value in a list of facts.
#[cfg(any(
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "zk"
))]
const UNKNOWN: &str = "not told";
