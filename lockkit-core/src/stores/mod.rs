//! Stores that need no server.

#[cfg(unix)]
pub mod file;
pub mod memory;
