//! Tells from an error of the ensemble or the connection whether a request had an effect.

use lockkit_core::{BackendError, Outcome};
use zookeeper_client::Error;

/// What a request returns.
pub(crate) type Result<T, E = BackendError> = std::result::Result<T, E>;

pub(crate) const BACKEND: &str = "zk";

/// The code by which a server refuses an ephemeral node to a session that it alone knows.
const EPHEMERAL_ON_LOCAL_SESSION: i32 = -120;

/// An error without anything that could be a secret. INV-14.
pub(crate) fn fault(
    operation: &'static str,
    outcome: Outcome,
    why: impl Into<String>,
) -> BackendError {
    BackendError::new(BACKEND, operation, outcome, why.into())
}

/// The error of a request that was sent, or may have been, to one of the servers at `place`.
pub(crate) fn of_request(
    operation: &'static str,
    error: &Error,
    place: Option<&str>,
) -> BackendError {
    let mut why = match error {
        Error::UnexpectedErrorCode(EPHEMERAL_ON_LOCAL_SESSION) => {
            "the session is local to one server, and such a session makes no locks: set \
             `localSessionsUpgradingEnabled=true` on the servers"
                .to_owned()
        }
        error => error.to_string(),
    };
    if let Some(place) = place {
        why = format!("{why} ({place})");
    }
    fault(operation, outcome(error), why)
}

/// The error of a connection. No request was sent.
pub(crate) fn of_connecting(error: &Error) -> (Outcome, String) {
    let outcome = match outcome(error) {
        Outcome::Indeterminate => Outcome::Unavailable,
        known => known,
    };
    (outcome, error.to_string())
}

pub(crate) fn outcome(error: &Error) -> Outcome {
    match error {
        Error::NoAuth
        | Error::InvalidAcl
        | Error::AuthFailed
        | Error::BadArguments(_)
        | Error::Unimplemented
        | Error::QuotaExceeded
        | Error::NoChildrenForEphemerals
        | Error::BadVersion
        | Error::NodeExists
        | Error::NotEmpty
        | Error::MarshallingError
        | Error::UnexpectedErrorCode(EPHEMERAL_ON_LOCAL_SESSION)
        | Error::ReconfigDisabled => Outcome::Rejected,
        // An ended session has lost its nodes, and a request on it had no effect. A node that is not
        // there is created, or the request repeated.
        Error::SessionExpired
        | Error::SessionMoved
        | Error::ClientClosed
        | Error::NoHosts
        | Error::Timeout
        | Error::NotReadOnly
        | Error::Throttled
        | Error::NoNode => Outcome::Unavailable,
        // The request or its answer was lost. Errors that are not known here prove nothing.
        _ => Outcome::Indeterminate,
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn lost_answer_is_indeterminate() {
        for error in [
            Error::ConnectionLoss,
            Error::UnexpectedError("?".into()),
            Error::UnexpectedErrorCode(-9),
        ] {
            assert_eq!(outcome(&error), Outcome::Indeterminate, "{error}");
            assert_eq!(of_connecting(&error).0, Outcome::Unavailable, "{error}");
        }
    }

    #[test]
    fn permanent_errors_differ_from_temporary_ones() {
        for error in [
            Error::NoAuth,
            Error::AuthFailed,
            Error::QuotaExceeded,
            Error::UnexpectedErrorCode(-120),
        ] {
            assert_eq!(outcome(&error), Outcome::Rejected, "{error}");
        }
        let local = of_request("attempt", &Error::UnexpectedErrorCode(-120), None);
        let why = local.source().unwrap().to_string();
        assert!(why.contains("localSessionsUpgradingEnabled"), "{why}");
        for error in [Error::SessionExpired, Error::NoHosts, Error::Throttled] {
            assert_eq!(outcome(&error), Outcome::Unavailable, "{error}");
        }
    }
}
