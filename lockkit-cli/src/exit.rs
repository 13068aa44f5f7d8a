//! Exit codes, and failures that carry one.

use std::io;

use lockkit::Error;

/// An exit code. The numbers are those of `sysexits.h` and of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u8);

impl Code {
    pub(crate) const OK: Self = Self(0);
    /// The name is free (`status`), or there was nothing to break (`break`).
    pub(crate) const FREE: Self = Self(1);
    /// An argument is wrong.
    pub(crate) const USAGE: Self = Self(64);
    /// The store cannot be reached, or it failed.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// Internal error of lockkit.
    pub(crate) const SOFTWARE: Self = Self(70);
    /// Error of the operating system, such as no process or pipe.
    pub(crate) const SYSTEM: Self = Self(71);
    /// The lock was not acquired in time.
    pub(crate) const NOT_ACQUIRED: Self = Self(75);
    /// The lock was lost while the program ran.
    pub(crate) const LOST: Self = Self(76);
    /// The program cannot be run.
    pub(crate) const CANNOT_RUN: Self = Self(126);
    /// The program was not found.
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// A signal ended the program, or the wait for the lock.
    pub(crate) fn of_signal(number: i32) -> Self {
        Self(128_u8.saturating_add(u8::try_from(number).unwrap_or(0)))
    }
}

/// An exit code and, unless there is nothing to say, an error message of one line.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: Option<String>,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: Some(message.into()),
        }
    }

    pub(crate) const fn silent(code: Code) -> Self {
        Self {
            code,
            message: None,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::USAGE, message)
    }

    /// A user called one of the commands that only `lockkit run` calls.
    pub(crate) fn internal() -> Self {
        Self::usage("this command is internal; call `lockkit run` instead")
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Code::SYSTEM, error.to_string())
    }
}

impl From<Error> for Failure {
    /// The code of an error of the library says what to do.
    fn from(error: Error) -> Self {
        let code = match error {
            Error::Timeout { .. } => Code::NOT_ACQUIRED,
            // It was lost before the program was started: nothing ran without it.
            Error::Lost { .. } | Error::Backend(_) => Code::UNAVAILABLE,
            Error::Shutdown | Error::NoRuntime => Code::SOFTWARE,
            _ => Code::USAGE,
        };
        Self::new(code, error.to_string())
    }
}
