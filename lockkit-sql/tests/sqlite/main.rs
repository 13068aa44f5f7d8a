//! The store in SQLite, with a second program that reads and writes the same file.
#![cfg(feature = "sqlite")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking, in what they share too"
)]

mod faults;
mod guarded;
mod place;
mod table;
