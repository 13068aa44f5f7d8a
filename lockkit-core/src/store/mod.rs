//! The kit for stores: what more than one of them needs.

mod backoff;
pub mod predecessors;
pub(crate) mod sync;
pub(crate) mod tombstones;
pub mod waiters;

pub use self::backoff::Backoff;
pub use self::sync::lock;
