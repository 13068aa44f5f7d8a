//! conformance-tests

pub mod checker;
mod failure;
pub mod history;
pub mod proxy;
#[cfg(unix)]
pub mod servers;

pub use failure::{Failure, Outcome, ensure};
