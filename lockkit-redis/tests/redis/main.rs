//! The store against a real server. It needs `redis-server` and `redis-cli`.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper of a test fails with the test"
)]

mod applied;
mod connection;
mod interop;
mod outcomes;
mod replies;
mod rights;
mod sections;
mod server;
mod steps;
#[cfg(feature = "tls")]
mod tls;
mod ways;
