//! Measures lock stores and compares each with its own bare operations in the same run.
//!
//! A time in a report is that of one machine on one day. The ratio of the lock to the bare operations of
//! its store, measured alternately, says more: it is nearly the same on another machine and on a busy one,
//! and where it is not, the report says so. The program `lockkit-bench` is the command of this library.
//!
//! ```no_run
//! # async fn example() -> Result<(), lockkit_bench::Failure> {
//! use lockkit_bench::{Bench, Program};
//!
//! let stores = ["memory:", "redis://127.0.0.1/"].map(str::to_owned);
//! let report = Bench::new(stores, Program::own()?).run().await?;
//! std::fs::write("locks.html", report.to_page())?;
//! # Ok(())
//! # }
//! ```
//!
//! The processes that contend, hold and are killed are this program, started again: a program that uses
//! this library calls [`serve`] first in its `main`.
//!
//! # What is in `benches/`
//! - `cargo bench -p lockkit-bench --all-features --bench stores`: all installed stores, on their own
//!   servers, compared with other lock libraries.
//! - `cargo bench -p lockkit-bench --bench overhead`: acquire, release and reentry on the memory
//!   store, compared with the bare map operations that every lock in memory needs.
//! - `cargo bench -p lockkit-bench --bench many_holds`: what 100 000 held guards cost in memory
//!   and processor time, and whether any is lost while all cores are busy.
//! - `cargo test --release -p conformance-tests --test speed_redis`, and the same for the other stores: figures
//!   of one store beside its own scripts or statements, with the bounds that each must meet.
//! - `cargo run -p lockkit-bench --example compare -- ONE.json OTHER.json`: whether two runs agree.
//! - `peers/`: programs in other languages that take the same orders as the workers of the bench.

mod bare;
#[cfg_attr(
    not(any(test, feature = "peers")),
    expect(dead_code, reason = "each is named where its feature is")
)]
mod built_in;
mod counter;
mod failure;
mod latency;
mod machine;
mod measure;
pub mod noise;
#[cfg(feature = "peers")]
mod peers;
mod progress;
pub mod report;
mod rounds;
mod run;
mod side;
mod target;
mod turns;
mod worker;

pub use bare::Fact;
pub use failure::{Failure, Outcome};
pub use machine::Machine;
#[cfg(feature = "peers")]
pub use peers::Peer;
pub use report::Report;
pub use run::Bench;
pub use side::Side;
pub use worker::{ARGUMENT, Program, serve};
