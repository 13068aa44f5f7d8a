//! The behaviour of core: one program, so that it is linked once.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod acquire;
mod auto_traits;
mod cancel;
mod contract;
mod deferred;
mod failures;
mod faulty;
mod file_directory;
mod file_gate;
mod file_steps;
mod file_store;
mod handover;
mod leases;
mod loss;
mod memory_store;
mod min_hold;
mod modes;
mod multi;
mod observed;
mod prefix;
mod reentry;
mod renewal;
mod runtimes;
mod schedules;
mod store_kit;
mod url;
mod work;

#[cfg(unix)]
mod scratch;
mod slow;
mod stage;
