//! The codes of PostgreSQL, and of the poolers that speak for it.

use lockkit_core::{BackendError, Outcome};

use crate::error::{Errors, Phase, Problem, SqlFault};

pub(crate) const ERRORS: Errors = Errors {
    backend: "postgres",
    classify,
};

fn classify(code: &str, _message: &str) -> (Problem, Outcome) {
    let class = code.get(..2).unwrap_or_default();
    match (code, class) {
        ("25006", _) => (Problem::ReadOnly, Outcome::Unavailable),
        ("42501" | "3D000", _) | (_, "28") => (Problem::Permission, Outcome::Rejected),
        // No such table, column, schema; another type or no index of that kind.
        ("42P01" | "42703" | "3F000" | "42804" | "42883" | "42P10" | "42846", _) => {
            (Problem::Schema, Outcome::Rejected)
        }
        // Lock and statement timeouts, conflicts of transactions: rolled back.
        ("55P03" | "57014" | "40001" | "40P01" | "25P02", _) => {
            (Problem::Busy, Outcome::Unavailable)
        }
        // Too many connections, out of memory or disk.
        (_, "53") | ("58030", _) => (Problem::Limit, Outcome::Unavailable),
        ("57P03", _) => (Problem::Connection, Outcome::Unavailable),
        // Ended by somebody, or with the server, perhaps after the commit.
        (_, "57" | "08") | ("40003" | "25P03", _) => (Problem::Connection, Outcome::Indeterminate),
        _ => (Problem::Refused, Outcome::Rejected),
    }
}

/// What became of a request that was sent.
pub(super) fn of(operation: &'static str, error: &sqlx::Error) -> BackendError {
    ERRORS.of(operation, Phase::Asking, error)
}

/// No repetition helps.
pub(super) fn rejected(operation: &'static str, problem: Problem, text: &str) -> BackendError {
    ERRORS.fault(operation, problem, Outcome::Rejected, text)
}

/// A conflict of transactions under a stricter isolation than ours, which was rolled back.
pub(super) fn is_conflict(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    matches!(error.code().as_deref(), Some("40001" | "40P01"))
}

/// A statement that the session is to keep prepared is not there, or is another, or its table has changed.
/// None of these carries out anything.
pub(super) fn is_unprepared(error: &BackendError) -> bool {
    let fault = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    let code = fault.and_then(|fault: &SqlFault| fault.code());
    matches!(code, Some("26000" | "42P05" | "0A000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_what_is_known() {
        for (code, problem, outcome) in [
            ("25006", Problem::ReadOnly, Outcome::Unavailable),
            ("28P01", Problem::Permission, Outcome::Rejected),
            ("42501", Problem::Permission, Outcome::Rejected),
            ("42P01", Problem::Schema, Outcome::Rejected),
            ("55P03", Problem::Busy, Outcome::Unavailable),
            ("40001", Problem::Busy, Outcome::Unavailable),
            ("53300", Problem::Limit, Outcome::Unavailable),
            ("57P03", Problem::Connection, Outcome::Unavailable),
            ("57P01", Problem::Connection, Outcome::Indeterminate),
            ("08P01", Problem::Connection, Outcome::Indeterminate),
            ("22021", Problem::Refused, Outcome::Rejected),
        ] {
            assert_eq!(classify(code, ""), (problem, outcome), "{code}");
        }
    }
}
