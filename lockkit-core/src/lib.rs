//! lockkit-core
pub mod backend;
mod capability;
pub mod clock;
mod error;
mod holder;
mod lease;
pub mod memory;
mod name;
mod sync;
mod token;

pub use backend::DistributedLock;
pub use capability::{Capabilities, EndsBy, Modes, PollRange, Queueing, TtlOf, Waiting};
pub use error::{BackendError, Error, LossReason, Outcome, Result};
pub use holder::{ClientId, HolderId, InvalidHolderId};
pub use lease::{Lease, queue_window, recheck, window};
pub use name::{InvalidName, LockName};
pub use token::FencingToken;
