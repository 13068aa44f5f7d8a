#![doc = include_str!("../docs.md")]
#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod admin;
mod attempt;
mod backend;
mod config;
mod connect;
mod error;
mod fenced;
mod keys;
#[cfg(feature = "mutants")]
mod mutant;
mod places;
mod queue;
mod renew;
mod session;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod watch;

pub use backend::{Counts, ZkStore};
pub use config::{Access, Auth, Dialect, Names, ZkStoreBuilder};
pub use fenced::{Fenced, FencedError, Write, Written};
#[cfg(feature = "mutants")]
pub use mutant::ZkMutant;
