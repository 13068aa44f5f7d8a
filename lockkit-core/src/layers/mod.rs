//! Decorators of the contract: each wraps a store and is one.
//!
//! | decorator | what it adds |
//! |---|---|
//! | `Traced` (feature `tracing`) | a span for each call |
//! | `Metered` (feature `metrics`) | counters and durations of calls |
//! | [`Faulty`] | faults, for tests of how a program bears them |
//!
//! [`as_any`](crate::contract::DistributedLock::as_any) of each returns the innermost store, so that
//! [`LockClient::store`](crate::LockClient::store) finds it under any number of them.

mod fault;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(any(feature = "metrics", feature = "tracing"))]
mod outcome;
#[cfg(feature = "tracing")]
mod trace;

pub use self::fault::{Fault, Faults, Faulty, Operation, Rule};
#[cfg(feature = "metrics")]
pub use self::metrics::Metered;
#[cfg(feature = "tracing")]
pub use self::trace::Traced;
