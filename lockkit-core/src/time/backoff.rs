//! When to try again, and the jitter of every pause: pure functions of what is known, without a
//! clock.

use std::time::Duration;

use crate::contract::{Attempt, Capabilities, Waiting};
use crate::time::lease::recheck;

/// The shortest pause after a hint of the store, so that a lease that ends "now" is not asked about
/// in a busy loop.
const SHORTEST_HINT: Duration = Duration::from_millis(5);
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// How long to wait after an attempt that returned [`Attempt::Held`], and before which came `polls` others.
/// INV-9: never longer than the recheck, whatever the store promised.
pub(crate) fn pause(
    capabilities: &Capabilities,
    ttl: Duration,
    held: &Attempt,
    polls: u32,
    jitter: f64,
) -> Duration {
    // Waiters that were woken together do not attempt in step for ever.
    let limit = recheck(capabilities, ttl).mul_f64(0.95 + jitter / 20.0);
    let hint = match held {
        Attempt::Held {
            retry_after: Some(hint),
            ..
        } => (*hint).max(SHORTEST_HINT.min(capabilities.poll.min)),
        _ => Duration::MAX,
    };
    if capabilities.waiting == Waiting::Push {
        return hint.min(limit);
    }
    let poll = capabilities.poll;
    let grown = poll.min.saturating_mul(1 << polls.min(16)).min(poll.max);
    hint.min(spread(grown, jitter)).min(limit.max(poll.min))
}

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
        spread(pause, jitter())
    }

    /// The next pause is the shortest again, after a success.
    pub const fn reset(&mut self) {
        self.next = self.shortest;
    }
}

/// The pauses of a client while its store fails: from 20 ms to 1 s.
impl Default for Backoff {
    fn default() -> Self {
        Self::new(FIRST_RETRY, LONGEST_RETRY)
    }
}

/// A random number in `-1.0..=1.0`.
pub(crate) fn jitter() -> f64 {
    fastrand::f64().mul_add(2.0, -1.0)
}

/// Spreads a pause over its upper half, so that clients that failed together do not return together.
fn spread(pause: Duration, jitter: f64) -> Duration {
    pause.mul_f64(0.75 + jitter / 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::PollRange;

    const TTL: Duration = Duration::from_secs(30);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn push() -> Capabilities {
        Capabilities {
            waiting: Waiting::Push,
            ..Capabilities::new()
        }
    }

    #[test]
    fn pushed_waiters_poll_every_recheck() {
        let push = push();
        assert_eq!(pause(&push, TTL, &Attempt::held(), 9, 1.0), ms(3_000));
        assert_eq!(pause(&push, ms(600), &Attempt::held(), 0, 1.0), ms(200));
        let hint = Attempt::held_for(Some(ms(120)));
        assert_eq!(pause(&push, TTL, &hint, 0, 1.0), ms(120));
        let now = Attempt::held_for(Some(Duration::ZERO));
        assert_eq!(pause(&push, TTL, &now, 0, 1.0), SHORTEST_HINT);
    }

    #[test]
    fn polls_of_pushed_waiters_are_spread_over_a_tenth() {
        let push = push();
        let at = |jitter| pause(&push, TTL, &Attempt::held(), 0, jitter);
        assert_eq!(at(1.0), ms(3_000), "never later than the recheck");
        assert_eq!(at(0.0), ms(2_850));
        assert_eq!(at(-1.0), ms(2_700));
    }

    #[test]
    fn polling_waiters_slow_down_to_the_users_limit() {
        let poll = Capabilities {
            poll: PollRange::new(ms(50), ms(400)),
            ..Capabilities::new()
        };
        let pauses: Vec<_> = (0..5)
            .map(|n| pause(&poll, TTL, &Attempt::held(), n, 1.0))
            .collect();
        assert_eq!(pauses, [ms(50), ms(100), ms(200), ms(400), ms(400)]);
        assert_eq!(pause(&poll, TTL, &Attempt::held(), 0, -1.0), ms(25));
    }

    #[test]
    fn polling_waiters_slow_down_from_a_shortest_pause_of_zero_too() {
        let poll = Capabilities {
            poll: PollRange::new(Duration::ZERO, ms(400)),
            ..Capabilities::new()
        };
        let now = Attempt::held_for(Some(Duration::ZERO));
        assert!(pause(&poll, TTL, &now, 0, -1.0) > Duration::ZERO);
        assert_eq!(pause(&poll, TTL, &Attempt::held(), 10, 1.0), ms(400));
    }

    #[test]
    fn failures_are_retried_ever_more_slowly() {
        let mut pauses = Backoff::default();
        let near = |pause: Duration, longest| pause >= longest / 2 && pause <= longest;
        for longest in [20, 40, 80, 160, 320, 640, 1000, 1000] {
            assert!(near(pauses.pause(), ms(longest)), "{longest}");
        }
        pauses.reset();
        assert!(near(pauses.pause(), ms(20)));
    }
}
