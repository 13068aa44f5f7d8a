//! What an error of the server or of the connection says about the effect of a request.

use std::error::Error as StdError;
use std::fmt;
use std::io::ErrorKind;

use lockkit_core::{BackendError, Outcome};

/// What is wrong, as far as a program can act on it.
///
/// # Examples
/// ```
/// use std::error::Error as _;
/// use lockkit_core::BackendError;
/// use lockkit_sql::{Problem, SqlFault};
///
/// fn is_read_only(error: &BackendError) -> bool {
///     let fault = error.source().and_then(|source| source.downcast_ref::<SqlFault>());
///     fault.is_some_and(|fault| fault.problem() == Problem::ReadOnly)
/// }
/// # let _ = is_read_only;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Problem {
    /// The server, or the file, takes no writes: a replica, or a server that was failed over from.
    ReadOnly,
    /// This user may not do it, or may not connect.
    Permission,
    /// The table is not there, or is not the one that is expected.
    Schema,
    /// Others were in the way: a lock or a time limit of the server, a conflict of transactions.
    Busy,
    /// The server has reached a limit: connections, memory, disk.
    Limit,
    /// The connection could not be made, or was lost.
    Connection,
    /// The server refuses the request for another reason.
    Refused,
    /// The answer is not one that can be read.
    Unreadable,
}

/// What went wrong in a database: the source of a [`BackendError`] of these stores.
#[derive(Clone, Debug)]
pub struct SqlFault {
    problem: Problem,
    code: Option<String>,
    text: String,
}

impl SqlFault {
    /// It would not go better with another try.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self {
            problem: Problem::Refused,
            code: None,
            text: text.into(),
        }
    }

    /// What is wrong.
    #[must_use]
    pub const fn problem(&self) -> Problem {
        self.problem
    }

    /// The database's own code: an SQLSTATE, or the result code of SQLite.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }
}

impl fmt::Display for SqlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.code {
            Some(code) => write!(f, " ({code})"),
            None => Ok(()),
        }
    }
}

impl StdError for SqlFault {}

/// What is wrong, where the source of an error is one of this crate's.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn problem_of(error: &BackendError) -> Option<Problem> {
    let fault = error.source().and_then(|source| source.downcast_ref());
    fault.map(SqlFault::problem)
}

/// The error of a step of which something was carried out before.
#[cfg(feature = "mysql")]
pub(crate) fn unclear(error: BackendError) -> BackendError {
    let fault = error.source().and_then(|source| source.downcast_ref());
    match fault {
        Some(fault) => {
            let fault = SqlFault::clone(fault);
            BackendError::new(
                error.backend(),
                error.operation(),
                Outcome::Indeterminate,
                fault,
            )
        }
        None => error,
    }
}

/// When the error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// While the connection was made: nothing was requested.
    Connecting,
    /// After a request was written, or may have been.
    Asking,
}

/// Reads the code and the text of a database's own error.
pub(crate) type Classify = fn(code: &str, message: &str) -> (Problem, Outcome);

/// Errors of one database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errors {
    pub(crate) backend: &'static str,
    pub(crate) classify: Classify,
}

impl Errors {
    /// An error with a text of our own.
    pub(crate) fn fault(
        self,
        operation: &'static str,
        problem: Problem,
        outcome: Outcome,
        text: impl Into<String>,
    ) -> BackendError {
        let fault = SqlFault {
            problem,
            code: None,
            text: text.into(),
        };
        BackendError::new(self.backend, operation, outcome, fault)
    }

    /// An answer that does not have the shape of one.
    pub(crate) fn unreadable(self, operation: &'static str) -> BackendError {
        let text = "the answer cannot be read";
        self.fault(operation, Problem::Unreadable, Outcome::Indeterminate, text)
    }

    /// Others had the row locked for the moment.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn skipped(self, operation: &'static str) -> BackendError {
        let text = "somebody else has the row locked";
        self.fault(operation, Problem::Busy, Outcome::Unavailable, text)
    }

    /// What became of a request.
    pub(crate) fn of(
        self,
        operation: &'static str,
        phase: Phase,
        error: &sqlx::Error,
    ) -> BackendError {
        let (problem, outcome, code, text) = self.read(phase, error);
        let fault = SqlFault {
            problem,
            code,
            text,
        };
        BackendError::new(self.backend, operation, outcome, fault)
    }

    fn read(self, phase: Phase, error: &sqlx::Error) -> (Problem, Outcome, Option<String>, String) {
        let lost = match phase {
            Phase::Connecting => Outcome::Unavailable,
            Phase::Asking => Outcome::Indeterminate,
        };
        match error {
            sqlx::Error::Database(error) => {
                let code = code_of(&**error);
                let (problem, outcome) =
                    (self.classify)(code.as_deref().unwrap_or_default(), error.message());
                let outcome = match (phase, outcome) {
                    (Phase::Connecting, Outcome::Indeterminate) => Outcome::Unavailable,
                    (_, outcome) => outcome,
                };
                (problem, outcome, code, error.message().to_owned())
            }
            // While connecting, bytes that make no sense are a certificate that is not trusted.
            sqlx::Error::Io(error)
                if phase == Phase::Connecting && error.kind() == ErrorKind::InvalidData =>
            {
                let text = format!("TLS: {error}");
                (Problem::Connection, Outcome::Rejected, None, text)
            }
            sqlx::Error::Io(error) => (Problem::Connection, lost, None, error.to_string()),
            sqlx::Error::Tls(error) => {
                let text = format!("TLS: {error}");
                (Problem::Connection, Outcome::Rejected, None, text)
            }
            sqlx::Error::Configuration(error) => {
                (Problem::Refused, Outcome::Rejected, None, error.to_string())
            }
            sqlx::Error::PoolTimedOut => (
                Problem::Limit,
                Outcome::Unavailable,
                None,
                "every connection of the pool is in use".to_owned(),
            ),
            sqlx::Error::PoolClosed => (
                Problem::Connection,
                Outcome::Rejected,
                None,
                "the pool is closed".to_owned(),
            ),
            sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                (Problem::Connection, lost, None, error.to_string())
            }
            other => (
                Problem::Unreadable,
                Outcome::Indeterminate,
                None,
                other.to_string(),
            ),
        }
    }
}

/// The code that tells most: MySQL has one SQLSTATE for a hundred things, and a number for each.
fn code_of(error: &dyn sqlx::error::DatabaseError) -> Option<String> {
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return Some(error.number().to_string());
    }
    error.code().map(String::from)
}
