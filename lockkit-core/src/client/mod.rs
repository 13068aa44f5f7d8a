//! The client of a store: what users touch, and what works for them in the background.
//!
//! Imports go from the later of these to the earlier: values and tables, then what all handles share,
//! then handles and tasks.

mod outstanding;
mod runtime;

mod attempt;
mod context;
mod hold;
mod label;
mod owner;
mod queue;
mod reaper;
mod reentry;
mod schedule;

mod held;
mod release;
mod shared;

mod acquire;
mod deferred;
mod election;
mod guard;
mod handover;
mod lock;
mod lock_client;
mod multi;
mod renewal;
mod rw_lock;
mod scope;
mod try_acquire;
mod wait;

pub use self::deferred::DeferredRelease;
pub use self::election::{Election, Leader, Leaders};
pub use self::guard::Guard;
pub use self::label::check_note;
pub use self::lock::Lock;
pub use self::lock_client::{ClientSettings, LockClient, LockClientBuilder};
pub use self::multi::{MultiGuard, MultiLock};
pub use self::owner::Owner;
pub use self::rw_lock::RwLock;
