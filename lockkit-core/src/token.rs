//! The number that makes a stale holder harmless.

use std::fmt;
use std::num::NonZeroU64;

/// Grows with every change of holder of one name, and stays the same through reentry.
///
/// Send it with every write to what the lock protects and refuse writes with a smaller one: that
/// refusal holds without any assumption about clocks, pauses or networks. Gaps are allowed, also
/// large ones: most stores take their clock in microseconds as a floor.
///
/// # Examples
/// ```
/// use lockkit_core::FencingToken;
///
/// let older = FencingToken::new(41).unwrap();
/// let newer = FencingToken::new(42).unwrap();
/// assert!(older < newer);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// Wraps a number; zero is no token.
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
