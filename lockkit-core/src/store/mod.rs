//! The kit for stores: what more than one of them needs.

mod backoff;
pub mod predecessors;
pub mod waiters;

pub use self::backoff::Backoff;
