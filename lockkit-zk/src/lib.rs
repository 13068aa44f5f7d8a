#![doc = include_str!("../docs.md")]
#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod admin;
mod backend;
mod config;
mod connection;
mod error;
mod fenced;
mod hold;
mod keys;
mod queue;
mod section;
mod session;
mod shared;
mod url;
mod waiters;
mod watch;

pub use backend::ZkStore;
pub use config::{Access, Auth, Dialect, Names, ZkStoreBuilder};
pub use fenced::{Fenced, Write, Written};
pub use lockkit_core::store::section::FencedError;
pub use section::{Entered, Section};
