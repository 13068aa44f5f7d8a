//! Replies of the server.

use std::fmt;
use std::time::Duration;

use lockkit_core::{BackendError, FencingToken, Outcome};
use redis::Value;

use crate::error::fault;

/// The reply to a script or command of the caller.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Reply {
    /// Nothing.
    Nil,
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// A truth value.
    Bool(bool),
    /// Text, or any bytes; also an error within a list.
    Bytes(Vec<u8>),
    /// Several replies.
    List(Vec<Self>),
}

impl Reply {
    /// The text, if it is text.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The whole number, also if it is written as text.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            Self::Bytes(_) => self.as_str()?.parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        self.as_int().and_then(|number| u64::try_from(number).ok())
    }

    /// The time left, if it is not negative.
    pub(crate) fn as_millis(&self) -> Option<Duration> {
        self.as_u64().map(Duration::from_millis)
    }

    pub(crate) fn as_token(&self) -> Option<FencingToken> {
        self.as_u64().and_then(FencingToken::new)
    }

    /// The replies in a list; empty for everything else.
    #[must_use]
    pub fn as_list(&self) -> &[Self] {
        match self {
            Self::List(list) => list,
            _ => &[],
        }
    }

    pub(crate) fn of(value: Value) -> Self {
        match value {
            Value::Int(number) => Self::Int(number),
            Value::Double(number) => Self::Double(number),
            Value::Boolean(truth) => Self::Bool(truth),
            Value::BulkString(bytes) => Self::Bytes(bytes),
            Value::SimpleString(text) | Value::VerbatimString { text, .. } => {
                Self::Bytes(text.into_bytes())
            }
            Value::Okay => Self::Bytes(b"OK".to_vec()),
            Value::BigNumber(digits) => Self::Bytes(digits),
            Value::Array(list) | Value::Set(list) => {
                Self::List(list.into_iter().map(Self::of).collect())
            }
            Value::Map(pairs) => {
                let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
                Self::List(flat.map(Self::of).collect())
            }
            Value::Attribute { data, .. } => Self::of(*data),
            Value::ServerError(error) => {
                let details = error.details().map(|details| format!(" {details}"));
                Self::Bytes([error.code(), &details.unwrap_or_default()].concat().into())
            }
            _ => Self::Nil,
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Int(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
            Self::Bool(truth) => truth.fmt(f),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).fmt(f),
            Self::List(list) => list.fmt(f),
        }
    }
}

/// The reply does not have the form that our script gives it: it comes from something else.
pub(crate) fn unreadable(operation: &'static str) -> BackendError {
    fault(
        operation,
        Outcome::Indeterminate,
        "the server's reply cannot be read",
    )
}
