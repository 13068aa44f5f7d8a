#![doc = include_str!("../docs.md")]
#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod admin;
mod backend;
mod config;
mod error;
mod events;
mod fenced;
mod hold;
mod keep_alive;
mod keys;
mod link;
mod position;
mod queue;
mod section;
mod session;
mod shared;
mod tickets;
mod url;
mod watches;

pub use etcd_client;

pub use backend::{Counts, EtcdStore};
pub use config::EtcdStoreBuilder;
pub use fenced::Fenced;
pub use keys::Names;
pub use lockkit_core::store::section::FencedError;
pub use section::{Entered, Section};
