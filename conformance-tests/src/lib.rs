//! conformance-tests

mod aged;
pub mod case;
pub mod cases;
pub mod checker;
mod clock;
pub mod ctx;
mod failure;
#[cfg(unix)]
pub mod foreign;
mod ground;
pub mod history;
pub mod proxy;
#[cfg(unix)]
pub mod servers;
pub mod setup;
pub mod setups;
mod suite;
pub mod taker;

pub use aged::Aged;
pub use case::{Case, Need, Programs};
pub use clock::JumpingClock;
pub use ctx::Ctx;
pub use failure::{Failure, Outcome, ensure};
pub use ground::Ground;
pub use setup::{Hook, Setup, Site};
pub use suite::{CaseRun, REQUIRE, Suite};
