//! The heart of lockkit: the contract that a store implements, and the client that gives every store
//! the same locks with fencing, reentrancy and an honest lost signal.
//!
//! Users come here through the crate `lockkit`, which adds the stores and `connect(url)`.
//!
//! - What users touch: [`LockClient`], [`Lock`], [`Guard`], [`Owner`], [`Lease`], [`FencingToken`], [`Error`].
//! - What a store implements: [`DistributedLock`], with everything in [`backend`].
//! - Stores without a server: [`memory`].
//!
//! Mechanism lives in the stores, one atomic step at a time. Policy lives here, once: waiting, renewal,
//! loss, reentry, cancellation and retry.

#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod attempt;
pub mod backend;
mod builder;
mod capability;
mod client;
pub mod clock;
mod core;
mod driver;
mod error;
#[cfg(unix)]
pub mod file;
mod guard;
mod hold;
mod holder;
mod keeper;
mod lease;
mod lock;
pub mod memory;
#[cfg(feature = "mutants")]
pub mod mutants;
#[cfg(not(feature = "mutants"))]
mod mutants;
mod name;
mod opening;
mod owner;
mod reaper;
mod releasing;
mod runtime;
mod scope;
pub mod store;
mod sync;
mod table;
mod token;
mod tombstones;
mod trying;
pub mod url;
mod waiter;
pub mod wrap;

pub use backend::DistributedLock;
pub use builder::LockClientBuilder;
pub use capability::{Capabilities, EndsBy, Modes, PollRange, Queueing, TtlOf, Waiting};
pub use client::LockClient;
pub use error::{BackendError, Error, LossReason, Outcome, Result};
pub use guard::Guard;
pub use holder::{ClientId, HolderId, InvalidHolderId};
pub use lease::{Lease, queue_window, recheck, window};
pub use lock::Lock;
pub use name::{InvalidName, LockName};
pub use owner::Owner;
pub use token::{FencingToken, InvalidToken};
pub use waiter::backoff;
