//! Servers as child processes that never outlive the tests.
//!
//! Each server runs below a small guardian process, in a session of its own. The guardian holds the
//! reading end of a pipe whose writing end only this process has; when the pipe closes, however this
//! process ended, the guardian kills the server's whole process group. Should the guardian itself be
//! killed, the server has the parent-death signal where the system knows one (Linux).
//!
//! The guardian is a program that calls [`guardian::serve`] first in its `main`: the `server-guard`
//! binary of this crate, or any other.

mod etcd;
pub mod guardian;
mod nutcracker;
mod port;
mod process;
mod redis;

pub use etcd::EtcdCluster;
pub use nutcracker::Nutcracker;
pub use port::free_port;
pub use process::{ServerCommand, ServerProcess};
pub use redis::RedisServer;
