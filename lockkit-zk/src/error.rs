//! What an error of the ensemble or of the connection says about the effect of a request.

use lockkit_core::{BackendError, Outcome};
use zookeeper_client::Error;

pub(crate) const BACKEND: &str = "zk";

/// An error in our words or the library's, without anything that could be a secret. INV-14.
pub(crate) fn fault(
    operation: &'static str,
    outcome: Outcome,
    why: impl Into<String>,
) -> BackendError {
    BackendError::new(BACKEND, operation, outcome, why.into())
}

/// What became of a request that was written, or that may have been.
pub(crate) fn of_request(operation: &'static str, error: &Error) -> BackendError {
    fault(operation, outcome(error), error.to_string())
}

/// Why there is no session. Nothing was requested.
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
        | Error::ReconfigDisabled => Outcome::Rejected,
        // What the session had is gone or going; a request that found it ended had no effect. A node
        // that is not there is made, or the request repeated.
        Error::SessionExpired
        | Error::SessionMoved
        | Error::ClientClosed
        | Error::NoHosts
        | Error::Timeout
        | Error::NotReadOnly
        | Error::Throttled
        | Error::NoNode => Outcome::Unavailable,
        // Lost on the way, there or back. The library says `Custom` where an answer did not come in
        // time, and whatever else it does not know the meaning of is no proof either.
        _ => Outcome::Indeterminate,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_lost_on_the_way_is_not_known() {
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
    fn refusals_are_told_apart_from_what_passes() {
        for error in [Error::NoAuth, Error::AuthFailed, Error::QuotaExceeded] {
            assert_eq!(outcome(&error), Outcome::Rejected, "{error}");
        }
        for error in [Error::SessionExpired, Error::NoHosts, Error::Throttled] {
            assert_eq!(outcome(&error), Outcome::Unavailable, "{error}");
        }
    }
}
