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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_through_a_signed_column_and_through_text() {
        for number in [1, 42, i64::MAX] {
            let token = FencingToken::try_from(number).unwrap();
            assert_eq!(token.to_i64(), number);
            assert_eq!(token.to_string().parse(), Ok(token));
            assert_eq!(u64::from(token), number.cast_unsigned());
        }
        for number in [0, -1, i64::MIN] {
            assert_eq!(FencingToken::try_from(number), Err(InvalidToken));
        }
        for text in ["", "0", "-1", "x", "18446744073709551616"] {
            assert_eq!(text.parse::<FencingToken>(), Err(InvalidToken), "{text}");
        }
        assert_eq!(FencingToken::new(u64::MAX).unwrap().to_i64(), i64::MAX);
    }

    #[test]
    #[cfg(feature = "serde")]
    fn is_a_number_and_a_name_is_a_text() {
        use crate::{LockName, LossReason, contract::LockState};

        let state = LockState::new(LockName::new("a/b").unwrap())
            .with_holder("me")
            .with_token(FencingToken::new(42));
        let text = serde_json::to_string(&state).unwrap();
        assert!(
            text.starts_with(r#"{"name":"a/b","holders":[{"id":"me","label":null,"mode":null,"token":null,"held_for":null,"remaining":null,"note":null}],"token":42,"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<LockState>(&text).unwrap(), state);
        assert!(serde_json::from_str::<LockName>(r#""""#).is_err());
        assert!(serde_json::from_str::<FencingToken>("0").is_err());
        let reason = serde_json::to_string(&LossReason::SessionEnded).unwrap();
        assert_eq!(reason, r#""session_ended""#);
    }
}
