//! The kit for stores: what more than one of them needs.

mod part;
pub mod predecessors;
pub mod section;
pub(crate) mod sync;
pub mod tag;
mod tombstones;
pub mod waiters;

pub use self::part::of_break;
pub use self::sync::lock;
pub use self::tombstones::Tombstones;
pub use crate::time::backoff::Backoff;
