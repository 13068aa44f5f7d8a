//! Servers as child processes that never outlive the tests.
//!
//! Each server runs below a small guardian process, in a session of its own. The guardian holds the
//! reading end of a pipe whose writing end only this process has; when the pipe closes, however this
//! process ended, the guardian kills the server's whole process group. Should the guardian itself be
//! killed, the server has the parent-death signal where the system knows one (Linux).
//!
//! The guardian is a program that calls [`guardian::serve`] first in its `main`: the `server-guard`
//! binary of this crate, or any other.

mod certificates;
mod cluster;
mod cluster_proxies;
mod etcd;
mod fake_sentinel;
mod family;
mod fresh;
pub mod guardian;
mod mysql;
mod nutcracker;
mod pgbouncer;
mod port;
mod postgres;
mod process;
mod processes;
mod redis;
mod redlock;
mod sentinel;
mod server_clock;
mod unprivileged;
mod zk;

pub use certificates::Certificates;
pub use cluster::{RedisCluster, partner};
pub use etcd::{EtcdCluster, EtcdCommand};
pub use fake_sentinel::FakeSentinel;
pub(crate) use family::wait_for_stop;
pub use mysql::{MysqlPrograms, MysqlServer};
pub use nutcracker::Nutcracker;
pub use pgbouncer::PgBouncer;
pub use port::free_port;
pub use postgres::{PostgresPrograms, PostgresServer};
pub use process::{ServerCommand, ServerProcess};
pub use processes::Processes;
pub use redis::RedisServer;
pub use redlock::RedlockServers;
pub use sentinel::{MASTER, SentinelGroup};
pub use server_clock::ServerClock;
pub use zk::{ZkCommand, ZkEnsemble, ZkServer};
