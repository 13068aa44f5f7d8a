#![doc = include_str!("../docs.md")]
#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod backend;
mod config;
mod contenders;
mod desk;
mod error;
mod fenced;
mod keys;
mod link;
mod mutant;
mod renew;
mod session;
mod sessions;
mod steps;
mod url;
mod watcher;

pub use etcd_client;

pub use backend::{Counts, EtcdStore};
pub use config::EtcdStoreBuilder;
pub use fenced::{Fenced, FencedError};
pub use keys::Names;
#[cfg(feature = "mutants")]
pub use mutant::{EtcdMutant, Obstructed, When};
