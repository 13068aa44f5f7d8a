//! Time: the clock, and pure arithmetic of leases and pauses.

pub(crate) mod backoff;
pub mod clock;
pub(crate) mod lease;
