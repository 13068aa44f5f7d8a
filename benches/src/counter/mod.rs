//! One number that contenders read, increase and write: under a lock, or by the store's own means.

#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) mod sql;
#[cfg(feature = "zk")]
pub(crate) mod zk;

use async_trait::async_trait;
use lockkit::Lock;
use serde::{Deserialize, Serialize};

use crate::failure::Outcome;

/// How a store excludes concurrent updates without a lock of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Control {
    /// The write fails if another client wrote after the read, and the loop begins again.
    Optimistic,
    /// The read locks the row.
    Pessimistic,
}

/// A number in a store, and the connection of one program to it.
#[async_trait]
pub(crate) trait Counter: Send + Sync {
    /// How the store itself excludes.
    fn controls(&self) -> &'static [Control];

    /// Whether a server with default settings has room for a client for each of 64 contenders.
    fn has_room(&self) -> bool {
        true
    }

    /// Sets it to 0.
    async fn create(&self) -> Outcome;

    async fn read(&self) -> Outcome<u64>;

    /// A contender that updates in a section of this lock.
    fn section(&self, lock: Lock) -> Box<dyn Update>;

    /// A contender that updates without one.
    async fn bare(&self, control: Control) -> Outcome<Box<dyn Update>>;
}

/// One of several contenders.
#[async_trait]
pub(crate) trait Update: Send {
    /// Tries to increase the number by one; returns whether it did.
    async fn attempt(&mut self) -> Outcome<bool>;
}
