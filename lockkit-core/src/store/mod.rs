//! The kit for stores: what more than one of them needs.

pub mod predecessors;
pub mod waiters;
