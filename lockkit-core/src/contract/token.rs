//! The number that makes a stale holder harmless.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// Grows with every change of holder of one name, and stays the same through reentry.
///
/// Send it with every write to what the lock protects and refuse writes with a smaller one: that
/// refusal holds without any assumption about clocks, pauses or networks. Gaps are allowed, also
/// large ones: most stores take their clock in microseconds as a floor.
///
/// # Units and shapes
/// A number from 1 on. Every store of lockkit stays below 2<sup>63</sup>, so that a signed column of 64 bits
/// holds it: bind [`to_i64`](Self::to_i64), read it with `TryFrom<i64>`; with the
/// feature `sqlx`, which `lockkit-sql` has, bind and read the token itself. As text, and with the feature
/// `serde`, it is that number.
///
/// # Examples
/// ```
/// use lockkit_core::FencingToken;
///
/// let older: FencingToken = "41".parse()?;
/// let newer = FencingToken::try_from(42_i64)?;
/// assert!(older < newer);
/// assert_eq!(newer.to_i64(), 42);
/// # Ok::<(), lockkit_core::InvalidToken>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(transparent))]
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

    /// The largest base that a store takes: then every revision has a token of its own.
    #[doc(hidden)]
    pub const LARGEST_BASE: u64 = (1 << 62) - 1;

    /// Checks a base.
    ///
    /// # Errors
    /// - What to do about one that is too large.
    #[doc(hidden)]
    pub const fn check_base(base: u64) -> Result<(), &'static str> {
        match base <= Self::LARGEST_BASE {
            true => Ok(()),
            false => Err("`token_base` is too large: set it to less than 2^62"),
        }
    }

    /// The token of a store's own revision, above a base that the operator chose, which is below
    /// 2<sup>62</sup>.
    #[must_use]
    pub fn of_revision(revision: i64, base: u64) -> Self {
        let revision = u64::try_from(revision).unwrap_or_default();
        let sum = revision.saturating_add(base).min(i64::MAX.cast_unsigned());
        Self(NonZeroU64::new(sum).unwrap_or(NonZeroU64::MIN))
    }

    /// The number for a signed column of a database; the largest one if it does not fit.
    #[must_use]
    pub fn to_i64(self) -> i64 {
        i64::try_from(self.get()).unwrap_or(i64::MAX)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = InvalidToken;

    fn try_from(number: u64) -> Result<Self, InvalidToken> {
        Self::new(number).ok_or(InvalidToken)
    }
}

impl TryFrom<i64> for FencingToken {
    type Error = InvalidToken;

    fn try_from(number: i64) -> Result<Self, InvalidToken> {
        u64::try_from(number).map_err(|_| InvalidToken)?.try_into()
    }
}

impl FromStr for FencingToken {
    type Err = InvalidToken;

    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        text.parse().map(Self).map_err(|_| InvalidToken)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Says that a number or a text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fencing token is a whole number from 1 to {}", u64::MAX)]
#[non_exhaustive]
pub struct InvalidToken;
