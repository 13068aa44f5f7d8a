//! The store in SQLite, with a second program that reads and writes the same file.
#![cfg(feature = "sqlite")]
#![expect(
    clippy::unwrap_used,
    reason = "tests fail by panicking, in what they share too"
)]

mod database;
mod faults;
mod guarded;
mod release_in;
mod table;
