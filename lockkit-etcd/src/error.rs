//! Errors of the server and of connections, and what they say about the effect of a request.

use std::error::Error as StdError;

use etcd_client::Error;
use lockkit_core::{BackendError, Outcome};
use tonic::{Code, ConnectError, Status};

/// What a request returns.
pub(crate) type Result<T, E = BackendError> = std::result::Result<T, E>;

pub(crate) const BACKEND: &str = "etcd";

/// Texts of the server for requests that it did not execute, in a state that passes.
const PASSING: [&str; 6] = [
    "no leader",
    "not capable",
    "too many requests",
    "learner",
    "unhealthy cluster",
    "revision of auth store is old",
];

#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// The lease of the request has ended. Nothing was done.
    LeaseGone,
    /// Anything else.
    Other(BackendError),
}

/// The meaning of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    pub(crate) lease_gone: bool,
    /// Another server, or a new connection with a new token of the user, may succeed.
    pub(crate) reconnect: bool,
    /// The request was not executed, so that it may be sent again at once.
    pub(crate) again: bool,
}

/// Operations that only read, and so have no effect in any case.
const READING: [&str; 5] = ["connect", "inspect", "list", "read", "watch"];

/// An error in our words or the server's, without secrets. INV-14.
pub(crate) fn fault(
    operation: &'static str,
    outcome: Outcome,
    why: impl Into<String>,
) -> BackendError {
    let outcome = match outcome {
        Outcome::Indeterminate if READING.contains(&operation) => Outcome::Unavailable,
        outcome => outcome,
    };
    BackendError::new(BACKEND, operation, outcome, why.into())
}

pub(crate) fn unreadable(operation: &'static str) -> BackendError {
    let why = "the server's answer cannot be understood";
    fault(operation, Outcome::Indeterminate, why)
}

impl Failed {
    /// The error where a request before it has had an effect, unless that ended with the lease.
    pub(crate) fn or_indeterminate(self) -> Self {
        match self {
            Self::LeaseGone => self,
            Self::Other(error) => Self::Other(error.with_outcome(Outcome::Indeterminate)),
        }
    }

    /// The error for a request without a lease.
    pub(crate) fn into_error(self, operation: &'static str) -> BackendError {
        match self {
            Self::LeaseGone => fault(operation, Outcome::Unavailable, "the session has ended"),
            Self::Other(error) => error,
        }
    }
}

pub(crate) fn judge(error: &Error) -> Verdict {
    let verdict = |outcome| Verdict {
        outcome,
        lease_gone: false,
        reconnect: false,
        again: false,
    };
    match error {
        Error::GRpcStatus(status) => judge_status(status, verdict(Outcome::Indeterminate)),
        Error::LeaseKeepAliveError(why) if why.contains("lease not found") => Verdict {
            lease_gone: true,
            ..verdict(Outcome::Unavailable)
        },
        // The transport cannot be built, for example because a certificate cannot be read.
        Error::TransportError(_)
        | Error::InvalidArgs(_)
        | Error::IoError(_)
        | Error::InvalidUri(_)
        | Error::InvalidMetadataValue(_)
        | Error::Utf8Error(_) => verdict(Outcome::Rejected),
        _ => Verdict {
            reconnect: true,
            ..verdict(Outcome::Indeterminate)
        },
    }
}

fn judge_status(status: &Status, unknown: Verdict) -> Verdict {
    let said = |text: &str| status.message().contains(text);
    let unavailable = Verdict {
        outcome: Outcome::Unavailable,
        ..unknown
    };
    if is_unsent(status) {
        return Verdict {
            reconnect: true,
            again: true,
            ..unavailable
        };
    }
    if status.code() == Code::NotFound && said("lease not found") {
        return Verdict {
            lease_gone: true,
            ..unavailable
        };
    }
    if PASSING.iter().any(|text| said(text)) {
        // The user needs a new token, or the server does not vote yet and serves nobody.
        let again = said("auth store") || said("learner");
        return Verdict {
            reconnect: again || said("leader"),
            again,
            ..unavailable
        };
    }
    // A full server says this of requests that it did execute, too. Or the answer is too long to be read.
    if said("database space exceeded") || status.code() == Code::OutOfRange {
        return unknown;
    }
    match status.code() {
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Unimplemented
        | Code::Unauthenticated => Verdict {
            outcome: Outcome::Rejected,
            // The user needs a new token.
            reconnect: status.code() == Code::Unauthenticated,
            ..unknown
        },
        // The request or its answer was lost, or the server does not know the result.
        _ => Verdict {
            reconnect: true,
            ..unknown
        },
    }
}

/// Whether no connection could be made.
fn is_unsent(status: &Status) -> bool {
    let mut source = StdError::source(status);
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The text of an error, with its causes.
pub(crate) fn text(error: &Error) -> String {
    match error {
        Error::GRpcStatus(status) if status.message().is_empty() => status.code().to_string(),
        Error::GRpcStatus(status) => {
            // The outermost error often says no more than "transport error".
            let mut text = status.message().to_owned();
            let mut source = StdError::source(status);
            while let Some(error) = source {
                let more = error.to_string();
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
                source = error.source();
            }
            text
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: Code, text: &str) -> Verdict {
        judge(&Error::GRpcStatus(Status::new(code, text)))
    }

    #[test]
    fn temporary_refusal_is_unavailable() {
        for (code, text) in [
            (Code::Unavailable, "etcdserver: no leader"),
            (Code::ResourceExhausted, "etcdserver: too many requests"),
        ] {
            assert_eq!(server(code, text).outcome, Outcome::Unavailable, "{text}");
        }
    }

    #[test]
    fn another_connection_is_tried_at_once_after_a_refusal_that_is_due_to_this_one() {
        for (code, text) in [
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old",
            ),
            (
                Code::Unavailable,
                "etcdserver: rpc not supported for learner",
            ),
        ] {
            let verdict = server(code, text);
            assert_eq!(verdict.outcome, Outcome::Unavailable, "{text}");
            assert!(verdict.reconnect && verdict.again, "{text}");
        }
    }

    #[test]
    fn permanent_refusal_is_rejected() {
        for (code, text) in [
            (Code::PermissionDenied, "etcdserver: permission denied"),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
            ),
            (Code::Unauthenticated, "etcdserver: invalid auth token"),
            (Code::InvalidArgument, "etcdserver: user name is empty"),
        ] {
            assert_eq!(server(code, text).outcome, Outcome::Rejected, "{text}");
        }
    }

    #[test]
    fn lost_answer_is_indeterminate() {
        for (code, text) in [
            (Code::Unavailable, "etcdserver: leader changed"),
            (Code::Unavailable, "etcdserver: request timed out"),
            (
                Code::Unavailable,
                "etcdserver: request timed out, possibly due to previous leader failure",
            ),
            (Code::Unavailable, "etcdserver: server stopped"),
            (Code::Unknown, "h2 protocol error: broken pipe"),
            (Code::Cancelled, "operation was canceled"),
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
            ),
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 5000000 bytes",
            ),
        ] {
            let verdict = server(code, text);
            assert_eq!(verdict.outcome, Outcome::Indeterminate, "{text}");
            assert!(!verdict.again, "{text}");
        }
    }

    #[test]
    fn ended_lease_is_recognized() {
        let verdict = server(Code::NotFound, "etcdserver: requested lease not found");
        assert!(verdict.lease_gone);
        let gone = Error::LeaseKeepAliveError("lease not found".to_owned());
        assert!(judge(&gone).lease_gone);
    }
}
