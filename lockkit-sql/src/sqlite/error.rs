//! The result codes of SQLite.

use lockkit_core::Outcome;

use crate::error::{Errors, Problem};

pub(crate) const ERRORS: Errors = Errors {
    backend: "sqlite",
    classify,
};

fn classify(code: &str, message: &str) -> (Problem, Outcome) {
    // The extended code has the reason in its upper bytes.
    let code = code.parse().unwrap_or(1) & 0xff;
    match code {
        1 if message.starts_with("no such") => (Problem::Schema, Outcome::Rejected),
        // BUSY, LOCKED, INTERRUPT, SCHEMA (changed under us), PROTOCOL (locking of the WAL).
        5 | 6 | 9 | 15 | 17 => (Problem::Busy, Outcome::Unavailable),
        // PERM, AUTH.
        3 | 23 => (Problem::Permission, Outcome::Rejected),
        8 => (Problem::ReadOnly, Outcome::Rejected),
        // NOMEM, FULL: the statement was rolled back.
        7 | 13 => (Problem::Limit, Outcome::Unavailable),
        // A write or its sync failed: what reached the disk is not known.
        10 => (Problem::Limit, Outcome::Indeterminate),
        14 => (Problem::Connection, Outcome::Unavailable),
        _ => (Problem::Refused, Outcome::Rejected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_result_codes() {
        for (code, problem, outcome) in [
            ("5", Problem::Busy, Outcome::Unavailable),
            ("517", Problem::Busy, Outcome::Unavailable),
            ("8", Problem::ReadOnly, Outcome::Rejected),
            ("1032", Problem::ReadOnly, Outcome::Rejected),
            ("13", Problem::Limit, Outcome::Unavailable),
            ("778", Problem::Limit, Outcome::Indeterminate),
            ("26", Problem::Refused, Outcome::Rejected),
        ] {
            assert_eq!(classify(code, ""), (problem, outcome), "{code}");
        }
        let missing = classify("1", "no such table: a");
        assert_eq!(missing, (Problem::Schema, Outcome::Rejected));
    }
}
