//! Errors of the database and of connections, and what they say about the effect of a request.

use std::error::Error as _;
use std::io::ErrorKind;

use lockkit_core::{BackendError, Outcome};

/// What a request returns.
pub(crate) type Result<T, E = BackendError> = std::result::Result<T, E>;

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
    /// The server, or the file, is read-only: a replica, or a former primary.
    ReadOnly,
    /// This user may not do it, or may not connect.
    Permission,
    /// The table is missing, or has other columns.
    Schema,
    /// A lock or a time limit of the server, or a conflict of transactions.
    Busy,
    /// The server has reached a limit: connections, memory, disk.
    Limit,
    /// The connection could not be made, or was lost.
    Connection,
    /// The server refuses the request for another reason.
    Refused,
    /// The reply cannot be read.
    Unreadable,
}

/// What went wrong in a database: the source of a [`BackendError`] of these stores.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}{}", .code.as_ref().map_or_else(String::new, |code| format!(" ({code})")))]
pub struct SqlFault {
    problem: Problem,
    code: Option<String>,
    text: String,
}

impl SqlFault {
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

/// The source of an error of this crate.
pub(crate) fn fault_of(error: &BackendError) -> Option<&SqlFault> {
    error.source()?.downcast_ref()
}

/// Whether an operator looks for its cause at the server or on the way there.
pub(crate) fn is_about_server(error: &BackendError) -> bool {
    let problem = fault_of(error).map(SqlFault::problem);
    matches!(problem, Some(Problem::Connection | Problem::ReadOnly))
}

/// The error with the address of its server.
pub(crate) fn at(address: &str, error: BackendError) -> BackendError {
    let Some(fault) = fault_of(&error).cloned() else {
        return error;
    };
    let text = format!("{address}: {}", fault.text);
    let (backend, operation) = (error.backend(), error.operation());
    let fault = SqlFault { text, ..fault };
    BackendError::new(backend, operation, error.outcome(), fault)
}

/// The error of a request of a step, of which an `earlier` one may have had an effect. One that is refused for good is
/// refused again, by the first request of the next step.
pub(crate) fn after(earlier: bool) -> impl FnOnce(BackendError) -> BackendError {
    move |error| match earlier {
        true => error.with_outcome(Outcome::Indeterminate),
        false => error,
    }
}

/// The errors of one database.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    pub(crate) backend: &'static str,
    /// Classifies the database's own errors by their code and text.
    pub(crate) classify: fn(code: &str, message: &str) -> (Problem, Outcome),
    /// Conflicts of transactions, which the database rolled back: a repetition may succeed.
    pub(crate) conflicts: &'static [&'static str],
    /// The connection does not know a prepared statement, or cannot prepare it. It executed nothing.
    pub(crate) unprepared: &'static [&'static str],
}

impl Errors {
    pub(crate) fn is_conflict(self, error: &BackendError) -> bool {
        has_code(error, self.conflicts)
    }

    pub(crate) fn is_unprepared(self, error: &BackendError) -> bool {
        has_code(error, self.unprepared)
    }

    /// An error that no repetition avoids.
    pub(crate) fn rejected(
        self,
        operation: &'static str,
        problem: Problem,
        text: impl Into<String>,
    ) -> BackendError {
        self.fault(operation, problem, Outcome::Rejected, text)
    }

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

    /// A reply of an unexpected shape.
    pub(crate) fn unreadable(self, operation: &'static str) -> BackendError {
        let text = "the reply cannot be read";
        self.fault(operation, Problem::Unreadable, Outcome::Indeterminate, text)
    }

    /// Another transaction has the row locked.
    pub(crate) fn skipped(self, operation: &'static str) -> BackendError {
        let text = "another transaction has the row locked";
        self.fault(operation, Problem::Busy, Outcome::Unavailable, text)
    }

    /// The error of a request. `connecting`: it occurred while the connection was made, when nothing was requested.
    pub(crate) fn of(
        self,
        operation: &'static str,
        connecting: bool,
        error: &sqlx::Error,
    ) -> BackendError {
        let lost = match connecting {
            true => Outcome::Unavailable,
            false => Outcome::Indeterminate,
        };
        // While connecting, invalid data means a certificate that is not trusted.
        let untrusted =
            |error: &std::io::Error| connecting && error.kind() == ErrorKind::InvalidData;
        let (problem, outcome) = match error {
            sqlx::Error::Database(error) => {
                return self.of_database(operation, connecting, &**error);
            }
            sqlx::Error::Tls(_) => (Problem::Connection, Outcome::Rejected),
            sqlx::Error::Io(error) if untrusted(error) => (Problem::Connection, Outcome::Rejected),
            sqlx::Error::Configuration(_) => (Problem::Refused, Outcome::Rejected),
            sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed => (Problem::Connection, lost),
            _ => (Problem::Unreadable, Outcome::Indeterminate),
        };
        self.fault(operation, problem, outcome, error.to_string())
    }

    fn of_database(
        self,
        operation: &'static str,
        connecting: bool,
        error: &dyn sqlx::error::DatabaseError,
    ) -> BackendError {
        let code = code_of(error);
        let text = error.message();
        let (problem, outcome) = (self.classify)(code.as_deref().unwrap_or_default(), text);
        let outcome = match outcome {
            Outcome::Indeterminate if connecting => Outcome::Unavailable,
            outcome => outcome,
        };
        let fault = SqlFault {
            problem,
            text: text.to_owned(),
            code,
        };
        BackendError::new(self.backend, operation, outcome, fault)
    }
}

fn has_code(error: &BackendError, codes: &[&str]) -> bool {
    let code = fault_of(error).and_then(SqlFault::code);
    code.is_some_and(|code| codes.contains(&code))
}

/// The most precise code: MySQL has one SQLSTATE for a hundred errors, and a number for each.
fn code_of(error: &dyn sqlx::error::DatabaseError) -> Option<String> {
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return Some(error.number().to_string());
    }
    error.code().map(String::from)
}
