//! Why a case failed, and where.

use std::error::Error;
use std::fmt;
use std::panic::Location;

/// The result of a case.
pub type Outcome<T = ()> = Result<T, Failure>;

/// Says why a case failed, with the line that gave up and every cause below it.
///
/// The question mark turns any error into one; [`Failure::new`] takes a sentence.
pub struct Failure {
    message: String,
    at: &'static Location<'static>,
}

impl Failure {
    /// A failure in one's own words.
    #[must_use]
    #[track_caller]
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            at: Location::caller(),
        }
    }

    /// The message, without the place.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The same failure with more to read, such as the log of a server.
    #[must_use]
    pub fn with_detail(mut self, detail: &str) -> Self {
        self.message.push('\n');
        self.message.push_str(detail);
        self
    }
}

impl<E: Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message.push_str(": ");
            message.push_str(&error.to_string());
            cause = error.source();
        }
        Self::new(message)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}:{})",
            self.message,
            self.at.file(),
            self.at.line()
        )
    }
}

/// Fails with `message` unless `holds`.
///
/// # Errors
/// - [`Failure`] with the line of the caller if `holds` is false.
#[track_caller]
pub fn ensure(holds: bool, message: impl Into<String>) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(Failure::new(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_line_and_the_causes() {
        fn fails() -> Outcome {
            let nothing: Result<(), _> = "x".parse::<u8>().map(drop);
            nothing?;
            Ok(())
        }
        let line = line!() - 3;
        let text = fails().unwrap_err().to_string();
        assert!(text.contains("invalid digit"), "{text}");
        assert!(text.ends_with(&format!("failure.rs:{line})")), "{text}");
        assert!(ensure(true, "").is_ok());
        assert_eq!(ensure(false, "no").unwrap_err().message(), "no");
    }
}
