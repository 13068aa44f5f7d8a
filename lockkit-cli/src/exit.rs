//! Exit codes, and failures that carry one.

use std::process::ExitCode;
use std::{fmt, io};

use lockkit::url::InvalidUrl;
use lockkit::{BackendError, Error};

/// How the command ends. The numbers are those of `sysexits.h` and of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The name is free (`status`), or there was nothing to break (`break`).
    Free,
    /// An argument is wrong.
    Usage,
    /// The store cannot be reached, or it failed.
    Unavailable,
    /// Internal error of lockkit.
    Software,
    /// Error of the operating system, such as no process or pipe.
    System,
    /// The lock was not acquired in time.
    NotAcquired,
    /// The lock was lost while the program ran.
    Lost,
    /// The program cannot be run.
    CannotRun,
    /// The program was not found.
    NotFound,
    /// A signal ended the program, or the wait for the lock.
    Signal(i32),
    /// The program's own exit code.
    Own(u8),
}

impl Code {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Free => 1,
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Software => 70,
            Self::System => 71,
            Self::NotAcquired => 75,
            Self::Lost => 76,
            Self::CannotRun => 126,
            Self::NotFound => 127,
            Self::Signal(number) => 128_u8.saturating_add(u8::try_from(number).unwrap_or(0)),
            Self::Own(code) => code,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.number())
    }
}

/// An error message of one line, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// A user called one of the commands that only `lockkit run` calls.
    pub(crate) fn internal() -> Self {
        let text = "this command is internal; call `lockkit run` instead";
        Self::new(Code::Usage, text)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Code::System, error.to_string())
    }
}

impl From<InvalidUrl> for Failure {
    fn from(error: InvalidUrl) -> Self {
        Self::new(Code::Usage, error.to_string())
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Error::Backend(error).into()
    }
}

impl From<Error> for Failure {
    /// The code of an error of the library says what to do.
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Timeout { .. } => Code::NotAcquired,
            Error::Lost { .. } => Code::Lost,
            Error::Backend(_) => Code::Unavailable,
            Error::Shutdown | Error::NoRuntime => Code::Software,
            _ => Code::Usage,
        };
        Self::new(code, error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_that_scripts_know() {
        let numbers = [
            (Code::Usage, 64),
            (Code::Unavailable, 69),
            (Code::NotAcquired, 75),
            (Code::Lost, 76),
            (Code::CannotRun, 126),
            (Code::NotFound, 127),
            (Code::Signal(15), 143),
            (Code::Own(7), 7),
        ];
        for (code, number) in numbers {
            assert_eq!(code.number(), number);
        }
    }
}
