//! Why something could not be measured.

use std::error::Error;
use std::fmt;

/// The result of a measurement.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Why something could not be measured, with every cause below it.
///
/// The question mark turns any error into one; [`Failure::new`] takes a sentence.
pub struct Failure(String);

impl Failure {
    /// A failure with this message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.ends_with(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            cause = error.source();
        }
        Self(message)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
