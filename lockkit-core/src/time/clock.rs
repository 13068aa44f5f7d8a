//! The one place that reads time for leases.
//!
//! Deadlines run on a clock that goes on while the machine sleeps, so that a laptop or a virtual
//! machine that was suspended sees its leases as gone. INV-1: never a wall clock.

use std::fmt::Debug;
use std::ops::Add;
use std::sync::Mutex;
use std::time::Duration;

use crate::store::sync::lock;

/// A point on a [`Clock`], in nanoseconds from an origin of that clock's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment `nanos` nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

/// Tells the time that leases are measured with.
///
/// It must never go back and should go on during a suspend.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Moment;
}

/// The machine's time since boot, suspends included: `CLOCK_BOOTTIME` on Linux and Android, the
/// continuous clock on Apple systems, and the monotonic clock elsewhere.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct BootClock;

impl Clock for BootClock {
    #[cfg(unix)]
    fn now(&self) -> Moment {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        const ID: rustix::time::ClockId = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        const ID: rustix::time::ClockId = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(ID);
        let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
        Moment(u64::try_from(nanos).unwrap_or(0))
    }

    #[cfg(not(unix))]
    fn now(&self) -> Moment {
        use std::sync::OnceLock;
        use std::time::Instant;
        // Constant after its first use, so it is a base and not a state.
        static BASE: OnceLock<Instant> = OnceLock::new();
        #[expect(clippy::disallowed_methods, reason = "this is the clock")]
        let now = Instant::now();
        let base = *BASE.get_or_init(|| now);
        Moment(0) + Duration::from_secs(1) + now.saturating_duration_since(base)
    }
}

/// Tokio's time, which tests can pause and move.
///
/// Give it to the client and to the memory store, and `tokio::time::advance` moves both.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// Starts now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        // One second ahead, so that a moment a little before the start can still be written.
        Moment(1_000_000_000) + self.origin.elapsed()
    }
}

/// A clock that stands still until it is moved.
///
/// It plays a suspend: after [`advance`](Self::advance) `check()` fails at once, while timers have
/// not noticed anything and `lost()` follows within a second.
#[derive(Debug)]
pub struct ManualClock {
    now: Mutex<Moment>,
}

impl ManualClock {
    /// Stands one second after its origin.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            now: Mutex::new(Moment(1_000_000_000)),
        }
    }

    /// Moves the clock forward.
    pub fn advance(&self, duration: Duration) {
        let mut now = lock(&self.now);
        *now = *now + duration;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        *lock(&self.now)
    }
}
