//! The contract between the client and a store.
//!
//! A store carries out one atomic server step at a time. Waiting, renewal, loss, reentry and retry
//! are decided in this crate, once for all stores; nothing of that belongs into a store.

pub(crate) mod capability;
pub(crate) mod error;
pub(crate) mod holder;
pub(crate) mod name;
mod store;
mod ticket;
pub(crate) mod token;

pub use self::capability::Mode;
pub use self::store::{DistributedLock, Wake, Watch};
pub use self::ticket::{Attempt, Grant, LockState, Release, Renewal, Ticket};
pub use crate::store::tombstones::Tombstones;
