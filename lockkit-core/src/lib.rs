//! The heart of lockkit: the contract that a store implements, and the client that gives every store
//! the same locks with fencing, reentrancy and an honest lost signal.
//!
//! Users come here through the crate `lockkit`, which adds the stores and `connect(url)`.
//!
//! - What users touch: [`LockClient`], [`Lock`], [`RwLock`], [`MultiLock`], [`Guard`], [`Owner`], [`Lease`], [`FencingToken`], [`Error`].
//! - What a store implements: [`DistributedLock`], with everything in [`contract`].
//! - Stores without a server: [`memory`] and, on Unix, `file`.
//!
//! Mechanism lives in the stores, one atomic step at a time. Policy lives here, once: waiting, renewal,
//! loss, reentry, cancellation and retry.

#![warn(clippy::large_futures)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod client;
pub mod contract;
pub mod layers;
pub mod store;
mod stores;
mod time;
pub mod url;

#[cfg(unix)]
pub use stores::file;
pub use stores::memory;
pub use time::clock;

#[doc(hidden)]
pub use client::{ClientSettings, check_note};
pub use client::{
    DeferredRelease, Election, Guard, Leader, Leaders, Lock, LockClient, LockClientBuilder,
    MultiGuard, MultiLock, Owner, RwLock,
};
pub use contract::DistributedLock;
pub use contract::capability::{
    Capabilities, EndsBy, Failover, PollRange, Queueing, TtlOf, Waiting,
};
pub use contract::error::{BackendError, Error, LossReason, Outcome, Result};
pub use contract::holder::{ClientId, HolderId, InvalidHolderId};
pub use contract::name::{InvalidName, LockName};
pub use contract::token::{FencingToken, InvalidToken};
pub use time::lease::{Lease, queue_window, recheck, window};
