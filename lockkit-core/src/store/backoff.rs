//! The pauses between attempts to connect that fail.

use std::time::Duration;

use crate::time::backoff::{jitter, spread};

/// Pauses that double from the shortest to the longest. Each is spread over its upper half, so that
/// clients that failed together do not return together.
#[derive(Clone, Debug)]
pub struct Backoff {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// Pauses from `shortest` to `longest`.
    #[must_use]
    pub const fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest,
            next: shortest,
        }
    }

    /// The next pause. The one after it is twice as long.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        spread(pause, jitter(&mut fastrand::Rng::new()))
    }

    /// The next pause is the shortest again, after a success.
    pub const fn reset(&mut self) {
        self.next = self.shortest;
    }
}
