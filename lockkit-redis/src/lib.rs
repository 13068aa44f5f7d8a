#![doc = include_str!("../docs.md")]
#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod admission;
mod backend;
mod config;
mod connection;
mod error;
mod fenced;
mod handshake;
mod keys;
mod redlock;
mod renew;
mod reply;
mod scripts;
mod sentinel;
mod stream;
mod subscriptions;
mod supervisor;
#[cfg(feature = "tls")]
mod tls;
mod url;

pub use backend::{Counts, RedisStore};
pub use config::{Protocol, RedisStoreBuilder, TokenTtl};
pub use fenced::{Command, Fenced, FencedError, Script};
pub use redlock::{RedlockStore, RedlockStoreBuilder};
pub use reply::Reply;
