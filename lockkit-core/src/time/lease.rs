//! Leases and the arithmetic of their windows: pure functions, no clock is read here.

use std::time::Duration;

use crate::contract::{Capabilities, TtlOf};
use crate::time::clock::Moment;

/// Says how long a hold lasts and who prolongs it.
///
/// # Units and shapes
/// `ttl` is the lease as the store counts it. The client trusts the hold for a little less,
/// `ttl - max(1 %, 10 ms)`, counted from before the request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lease {
    /// The client's renewal task prolongs the lease every `ttl / 3` for as long as a guard lives (what
    /// Redisson calls its watchdog). A crashed holder is freed after at most `ttl`.
    Renewed {
        /// The lease between two renewals.
        ttl: Duration,
    },
    /// Only [`Guard::extend`](crate::Guard::extend) prolongs the lease; at its end the hold
    /// is lost.
    Fixed {
        /// The whole time from the grant to the end.
        ttl: Duration,
    },
}

impl Lease {
    /// A lease that the renewal task prolongs.
    #[must_use]
    pub const fn renewed(ttl: Duration) -> Self {
        Self::Renewed { ttl }
    }

    /// A lease that ends by itself.
    #[must_use]
    pub const fn fixed(ttl: Duration) -> Self {
        Self::Fixed { ttl }
    }

    /// Its length as the store counts it.
    #[must_use]
    pub const fn ttl(self) -> Duration {
        match self {
            Self::Renewed { ttl } | Self::Fixed { ttl } => ttl,
        }
    }
}

impl Default for Lease {
    /// Renewed, 30 seconds.
    fn default() -> Self {
        Self::renewed(Duration::from_secs(30))
    }
}

/// The part `L` of a lease that a client trusts: one per cent less for clocks that run at
/// different rates, and at least ten milliseconds between reading the clock and the act that
/// follows. INV-2.
#[must_use]
pub fn window(ttl: Duration) -> Duration {
    ttl.saturating_sub((ttl / 100).max(Duration::from_millis(10)))
}

/// The shortest lease of which a client trusts at least `time`, among those that the store does.
pub(crate) fn lease_for(time: Duration, capabilities: &Capabilities) -> Duration {
    let nanos = time.as_nanos();
    let lease = (nanos * 100).div_ceil(99).max(nanos + 10_000_000);
    let whole = lease.next_multiple_of(capabilities.ttl_step.as_nanos().max(1));
    let lease = u64::try_from(whole).map_or(Duration::MAX, Duration::from_nanos);
    lease.max(capabilities.min_ttl).min(capabilities.max_ttl)
}

/// How often a waiter repeats its attempt, which is also the heartbeat of its place in the queue, unless a
/// session keeps that.
#[must_use]
pub fn recheck(capabilities: &Capabilities, ttl: Duration) -> Duration {
    let longest = match capabilities.ttl_of {
        TtlOf::PerHold => ttl / 3,
        TtlOf::PerSession => ttl / 2,
    };
    capabilities.recheck.min(longest)
}

/// How long a place in a queue lasts without a heartbeat, and at most how long a grant lasts that
/// was pushed to a waiter that has not responded yet.
#[must_use]
pub fn queue_window(capabilities: &Capabilities, ttl: Duration) -> Duration {
    recheck(capabilities, ttl) * 3
}

/// When to renew a lease that was set at `since`: after a third, spread by `jitter` in `-1.0..=1.0`
/// over ten per cent so that the holds of a client that restarted do not all renew at once.
pub(crate) fn renewal_due(since: Moment, ttl: Duration, jitter: f64) -> Moment {
    since + (ttl / 3).mul_f64(1.0 + jitter / 10.0)
}

/// When to renew a grant that was pushed with the short lease `granted`: a third into it, but not
/// within the first second of the hold, so that short holds cost no renewal, and never with less
/// than half of it left.
pub(crate) fn first_renewal_due(since: Moment, granted: Duration, now: Moment) -> Moment {
    let wished = (since + granted / 3).max(now + Duration::from_secs(1));
    wished.min(since + granted / 2)
}

/// The longest that one renewal may take before it is tried again.
pub(crate) fn renewal_timeout(ttl: Duration, request: Duration) -> Duration {
    (ttl / 6).min(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_window_is_shorter_than_the_lease() {
        assert_eq!(window(ms(30_000)), ms(29_700));
        assert_eq!(window(ms(500)), ms(490));
        assert_eq!(window(ms(5)), ms(0));
    }

    #[test]
    fn a_lease_covers_the_time_that_it_is_asked_for() {
        let can = Capabilities {
            max_ttl: ms(60_000),
            ..Capabilities::new()
        };
        for lease in [ms(100), ms(999), ms(1_000), ms(1_001), ms(30_000)] {
            assert_eq!(lease_for(window(lease), &can), lease);
        }
        let odd = Duration::from_nanos(29_700_000_001);
        assert_eq!(lease_for(odd, &can), ms(30_001), "rounded up to the step");
        let whole = Capabilities {
            ttl_step: ms(1_000),
            ..can
        };
        assert_eq!(lease_for(ms(1_500), &whole), ms(2_000));
        assert_eq!(lease_for(ms(5), &can), ms(100));
        assert_eq!(lease_for(ms(70_000), &can), ms(60_000));
    }

    #[test]
    fn waiters_look_several_times_within_a_lease() {
        let holds = Capabilities {
            recheck: ms(15_000),
            ..Capabilities::new()
        };
        let sessions = Capabilities {
            ttl_of: TtlOf::PerSession,
            ..holds
        };
        for (can, lease, expected) in [
            (holds, 6_000, 2_000),
            (holds, 60_000, 15_000),
            (sessions, 6_000, 3_000),
            (sessions, 60_000, 15_000),
        ] {
            assert_eq!(recheck(&can, ms(lease)), ms(expected), "{lease}");
        }
    }

    #[test]
    fn a_pushed_grant_is_renewed_late_but_in_time() {
        let since = Moment::from_nanos(0);
        // A window of nine seconds, granted at once: a third of it is later than one second.
        assert_eq!(
            first_renewal_due(since, ms(9_000), since),
            since + ms(3_000)
        );
        // Granted four seconds after the heartbeat: a second later would leave less than half.
        assert_eq!(
            first_renewal_due(since, ms(9_000), since + ms(4_000)),
            since + ms(4_500)
        );
        // A short window: half of it counts, not the second.
        assert_eq!(first_renewal_due(since, ms(600), since), since + ms(300));
    }

    #[test]
    fn renewals_are_spread_around_a_third() {
        let since = Moment::from_nanos(0);
        assert_eq!(renewal_due(since, ms(30_000), 0.0), since + ms(10_000));
        assert_eq!(renewal_due(since, ms(30_000), -1.0), since + ms(9_000));
        assert_eq!(renewal_due(since, ms(30_000), 1.0), since + ms(11_000));
    }
}
