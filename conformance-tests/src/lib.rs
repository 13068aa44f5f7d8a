//! The conformance suite of lockkit: the promises of a lock store, as cases that run on any store.
//!
//! A case is written once and works on the [contract](lockkit_core::contract) and on the client above
//! it; what it may expect it reads from the store's [`Capabilities`](lockkit_core::Capabilities). A
//! [`Setup`] is a named way to open a store. A [`Suite`] runs cases times setups:
//!
//! ```text
//! test                           memory::fencing::token_grows_over_release ... ok
//! test [skip: waiters are woken] memory::waiting::poller_finds_a_free_lock ... ignored
//! ```
//!
//! What cannot run is listed as ignored with its reason, and the variable `LOCKKIT_REQUIRE`
//! (`memory,file`, or `all`) turns the absence of a setup into a failure.
//!
//! # A store of your own
//! Implement [`Setup`] and [`Namespace`] for it, and make this the `main` of a test without a harness
//! (`[[test]] name = "conformance"`, `harness = false`). The example `own_store` is all of it:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use conformance_tests::{Outcome, Setup, Namespace, Suite};
//! use lockkit_core::memory::MemoryStore as MyStore;
//! use lockkit_core::{Capabilities, DistributedLock};
//!
//! #[derive(Debug)]
//! struct MySetup;
//!
//! #[async_trait::async_trait]
//! impl Setup for MySetup {
//!     fn name(&self) -> &str {
//!         "my-store"
//!     }
//!     fn capabilities(&self) -> Capabilities {
//!         MyStore::new().capabilities()
//!     }
//!     async fn namespace(&self, _alone: bool) -> Outcome<Box<dyn Namespace>> {
//!         Ok(Box::new(MyNamespace(MyStore::new())))
//!     }
//! }
//!
//! #[derive(Debug)]
//! struct MyNamespace(MyStore);
//!
//! #[async_trait::async_trait]
//! impl Namespace for MyNamespace {
//!     async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
//!         Ok(Arc::new(self.0.connect()))
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     Suite::new().setup(MySetup).run()
//! }
//! ```
//!
//! # What else is here
//! | module | what it is for |
//! |---|---|
//! | [`proxy`] | a TCP proxy that delays, cuts, resets, refuses and loses replies |
//! | [`servers`] | servers as child processes that never outlive the tests |
//! | [`history`], [`checker`] | what clients saw, from any number of processes, and the checks of it |
//! | [`requests`] | single requests to a store, without a client above it |
//! | [`steps`] | steps of which a request fails: what they must return and may leave |
//! | [`loss`] | what a guard sees when its hold is lost |
//! | [`taker`] | a process that takes locks, to be killed and frozen |
//! | [`section_history`] | sections of all stores alike, in processes that are killed and stopped |
//! | [`contention`], [`figures`] | clients that contend, and the bounds of their speed |
//! | [`mode_speed`] | the speed of readers, writers and permits, measured alike on all stores |
//! | [`setups`] | the setups of the stores that come with lockkit |
//!
//! The suite is tested too: `mutants/table.txt` lists broken variants of the stores and the client, and the cases
//! that must fail for each.

mod case;
pub mod cases;
pub mod checker;
mod clock;
pub mod contention;
mod ctx;
mod failure;
pub mod figures;
#[cfg(unix)]
pub mod foreign;
pub mod history;
pub mod loss;
pub mod mode_speed;
mod namespace;
pub mod requests;
mod runner;
#[cfg(unix)]
pub mod section_history;
mod sections;
#[cfg(unix)]
pub mod servers;
mod setup;
pub mod setups;
mod stale_session;
pub mod steps;
mod storage;
mod suite;
pub mod taker;
pub mod task;
mod test_suite;

pub use case::{Case, Need, Run};
pub use clock::JumpingClock;
pub use ctx::{Ctx, Programs};
pub use failure::{Failure, Outcome, ensure};
pub use lockkit_proxy as proxy;
pub use namespace::{Hook, Namespace, Server};
pub use runner::REQUIRE;
pub use setup::Setup;
pub use stale_session::StaleSession;
pub use storage::Storage;
pub use suite::{CaseRun, Suite};
pub use test_suite::TestSuite;
