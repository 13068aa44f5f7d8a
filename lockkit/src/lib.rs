//! Distributed locks with fencing, reentrancy and an honest lost signal. The store is one Cargo
//! feature and one URL.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit::Result<()> {
//! let client = lockkit::connect("memory:").await?;
//!
//! let guard = client.lock("orders/42")?.acquire().await?;
//! println!("write with token {}", guard.token());
//! guard.release().await?;
//!
//! // In one call: acquire, work, release; the work is dropped if the lock is lost.
//! let sum = client.lock("orders/42")?.scope(async |_guard| 40 + 2).await?;
//! assert_eq!(sum, 42);
//! # Ok(()) }
//! ```
//!
//! A lease alone is never enough: a process that was stopped for longer than its lease continues when it
//! wakes, and does not know. Send [`Guard::token`] with every write and let the store of your data
//! refuse smaller ones: that needs no assumption about clocks and pauses.
//!
//! # Stores
//! | URL | feature |
//! |---|---|
//! | `memory:`, `file:/var/lib/lockkit` | none |
//! | `sqlite:locks.db` | `sqlite` |
//! | `postgres://host/database`, `postgresql://host/database` | `postgres` |
//! | `mysql://host/database`, `mariadb://host/database` | `mysql` |
//! | `redis://host/`, `rediss://host/`, `redis+unix:///path`; `valkey://host/`, `valkeys://host/`, `unix:///path` | `redis` |
//! | `redis+sentinel://host1,host2/mymaster`, `rediss+sentinel://host/mymaster` | `redis` |
//! | `redis+cluster://host1,host2`, `rediss+cluster://host` | `redis` |
//! | `redlock://host1,host2,host3/`, `redlocks://host1,host2,host3/` | `redis` |
//! | `etcd://host:2379/`, `etcds://host:2379/` | `etcd` |
//! | `zk://host1,host2,host3/`, `zks://host/?ca=/path/ca.pem` | `zk` |
//!
//! [`manual::choosing`] compares them.
//! `rediss`, `rediss+sentinel`, `rediss+cluster`, `redlocks`, `etcds`, `zks` and the TLS options of the SQL stores need the feature `tls`.
//!
//! What only one kind of store can do, such as work that is executed only while a hold lasts, is in
//! `lockkit::etcd`, `lockkit::redis`, `lockkit::sql` and `lockkit::zk`.
//!
//! The [`manual`] explains how locks fail, how to fence a write, and how to choose a store and a kind of lock. It
//! lists every default, and says how to migrate from another lock, and when not to use one.
//!
//! [`connect`] describes URLs and their options. To use your own store, implement
//! [`DistributedLock`] and pass it to [`LockClient::new`].

#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connect;
pub mod manual;
mod stores;

pub use connect::{Connect, builder, connect};
#[doc(hidden)]
pub use lockkit_core::check_note;
#[cfg(unix)]
#[doc(inline)]
pub use lockkit_core::file;
#[doc(inline)]
pub use lockkit_core::{
    BackendError, Capabilities, ClientId, DistributedLock, Election, EndsBy, Error, Failover,
    FencingToken, Guard, HolderId, InvalidHolderId, InvalidName, InvalidToken, Leader, Leaders,
    Lease, Lock, LockClient, LockClientBuilder, LockName, LossReason, MultiGuard, MultiLock,
    Outcome, Owner, PollRange, Queueing, Result, RwLock, TtlOf, Waiting,
};
#[doc(inline)]
pub use lockkit_core::{clock, contract, layers, memory, url};
#[cfg(feature = "etcd")]
#[doc(inline)]
pub use lockkit_etcd as etcd;
#[cfg(feature = "redis")]
#[doc(inline)]
pub use lockkit_redis as redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#[doc(inline)]
pub use lockkit_sql as sql;
#[cfg(feature = "zk")]
#[doc(inline)]
pub use lockkit_zk as zk;

/// The example of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
