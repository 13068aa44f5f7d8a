//! The kit for stores: what more than one of them needs.

mod commit;
mod part;
pub mod predecessors;
pub(crate) mod sync;
pub mod tag;
pub(crate) mod tombstones;
pub mod waiters;

pub use self::commit::of_commit;
pub use self::part::of_break;
pub use self::sync::lock;
pub use crate::time::backoff::Backoff;
