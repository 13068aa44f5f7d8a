//! The real command as a real process, on the embedded store.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests fail by panicking, in what they share too"
)]

mod bench;
mod contention;
mod cron;
mod death;
mod exit_codes;
mod loss;
mod messages;
mod names;
mod nested;
mod operator;
mod signals;
#[cfg(feature = "postgres")]
mod silent;
mod stage;
#[cfg(target_os = "linux")]
mod terminal;
