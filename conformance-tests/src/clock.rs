//! A clock that can jump, as the clock of a machine does after sleep.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockkit_core::clock::{BootClock, Clock, Moment};

/// The boot clock plus what it has jumped. Clones jump together.
#[derive(Clone, Debug, Default)]
pub struct JumpingClock {
    ahead: Arc<AtomicU64>,
}

impl JumpingClock {
    /// A clock that has not jumped.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes ahead by `span`, while timers notice nothing.
    pub fn jump(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.ahead.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Moment {
        BootClock::default().now() + Duration::from_nanos(self.ahead.load(Ordering::SeqCst))
    }
}
