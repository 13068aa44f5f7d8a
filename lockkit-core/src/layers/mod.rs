//! Decorators of the contract: each wraps a store and is one.
//!
//! | decorator | what it adds |
//! |---|---|
//! | `Instrumented` (feature `tracing` or `metrics`) | a span for each call, counters and durations of calls |
//! | [`Faulty`] | faults, for tests of how a program bears them |
//!
//! [`as_any`](crate::contract::DistributedLock::as_any) of each returns the innermost store, so that
//! [`LockClient::store`](crate::LockClient::store) finds it under any number of them.

mod fault;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod instrumented;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod outcome;

pub use self::fault::{Fault, Faults, Faulty, Operation, Rule};
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub use self::instrumented::Instrumented;
