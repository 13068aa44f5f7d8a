#![doc = include_str!("../docs.md")]
#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod admission;
mod backend;
mod cluster;
mod config;
mod connection;
mod error;
mod fenced;
mod handshake;
mod keys;
mod masters;
mod redlock;
mod renew;
mod reply;
mod route;
mod scripts;
mod section;
mod sentinel;
mod shards;
mod slot;
mod subscriptions;
mod supervisor;
mod survey;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod work;

pub use backend::{Counts, RedisStore};
pub use config::{Protocol, RedisStoreBuilder, TokenTtl};
pub use fenced::{Fenced, Script};
pub use lockkit_core::store::section::FencedError;
pub use redlock::{RedlockStore, RedlockStoreBuilder};
pub use reply::Reply;
pub use section::{Entered, Section};
pub use work::Command;
