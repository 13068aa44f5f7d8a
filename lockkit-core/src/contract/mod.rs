//! The contract between the client and a store.
//!
//! A store carries out one atomic server step at a time. This crate decides waiting, renewal, loss, reentry
//! and retry, once for all stores.

pub(crate) mod capability;
#[cfg(feature = "sqlx")]
mod column;
pub(crate) mod error;
pub(crate) mod holder;
pub(crate) mod name;
mod state;
mod store;
mod ticket;
pub(crate) mod token;
mod work;

pub(crate) use self::capability::{Capabilities, EndsBy, PollRange, Queueing, TtlOf, Waiting};
pub(crate) use self::error::{BackendError, Error, LossReason, Outcome, Result};
pub(crate) use self::holder::{ClientId, HolderId};
pub(crate) use self::name::LockName;
pub(crate) use self::token::FencingToken;

pub use self::capability::Mode;
pub use self::state::{Holder, LockState};
pub use self::store::{DistributedLock, Wake, Watch};
pub use self::ticket::{Attempt, Grant, Release, Renewal, Ticket};
pub use self::work::Work;
