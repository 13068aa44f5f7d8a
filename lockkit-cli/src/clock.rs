//! The clock of leases, the same for `lockkit run` and its shim.

use lockkit::clock::{BootClock, Clock, Moment};

/// The present moment.
pub(crate) fn now() -> Moment {
    BootClock::default().now()
}
