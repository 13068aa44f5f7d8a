//! Errors of the server and of connections, and what they say about the effect of a request.

use std::error::Error as StdError;

use etcd_client::Error;
use lockkit_core::{BackendError, Outcome};
use tonic::{Code, ConnectError, Status};

pub(crate) const BACKEND: &str = "etcd";

/// Texts of the server for requests that it did not execute, in a state that passes.
const PASSING: [&str; 7] = [
    "no leader",
    "not capable",
    "too many requests",
    "learner",
    "unhealthy cluster",
    "revision in header is old",
    "auth: revision",
];

/// A request that failed.
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
    /// The request never left this machine: another server may be asked at once.
    pub(crate) unsent: bool,
    /// Another server, or a new connection, may succeed.
    pub(crate) change: bool,
    pub(crate) lease_gone: bool,
    /// The user needs a new token.
    pub(crate) stale_token: bool,
}

/// Operations that only read, and so have no effect in any case.
const READING: [&str; 4] = ["connect", "inspect", "list", "watch"];

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

/// An error of the client library, or of the server at `place`.
pub(crate) fn of(operation: &'static str, error: &Error, place: &str) -> BackendError {
    let verdict = judge(error);
    let mut text = text(error);
    if verdict.change {
        text = format!("{text} ({place})");
    }
    fault(operation, verdict.outcome, text)
}

impl Failed {
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
        unsent: false,
        change: false,
        lease_gone: false,
        stale_token: false,
    };
    match error {
        Error::GRpcStatus(status) => of_status(status, verdict(Outcome::Indeterminate)),
        Error::LeaseKeepAliveError(why) if why.contains("lease not found") => Verdict {
            lease_gone: true,
            ..verdict(Outcome::Unavailable)
        },
        Error::InvalidArgs(_)
        | Error::IoError(_)
        | Error::InvalidUri(_)
        | Error::InvalidMetadataValue(_)
        | Error::Utf8Error(_) => verdict(Outcome::Rejected),
        // The transport cannot be built, for example because a certificate cannot be read.
        Error::TransportError(_) => Verdict {
            unsent: true,
            ..verdict(Outcome::Rejected)
        },
        _ => Verdict {
            change: true,
            ..verdict(Outcome::Indeterminate)
        },
    }
}

fn of_status(status: &Status, unknown: Verdict) -> Verdict {
    let said = |text: &&str| status.message().contains(*text);
    if is_unsent(status) {
        return Verdict {
            outcome: Outcome::Unavailable,
            unsent: true,
            change: true,
            ..unknown
        };
    }
    if status.code() == Code::NotFound && status.message().contains("lease not found") {
        return Verdict {
            outcome: Outcome::Unavailable,
            lease_gone: true,
            ..unknown
        };
    }
    if PASSING.iter().any(said) {
        return Verdict {
            outcome: Outcome::Unavailable,
            change: status.message().contains("leader"),
            stale_token: status.message().contains("auth"),
            ..unknown
        };
    }
    // A full server says this of requests that it did execute, too. Or the answer is too long to be read.
    if status.message().contains("database space exceeded") || status.code() == Code::OutOfRange {
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
            stale_token: status.code() == Code::Unauthenticated,
            ..unknown
        },
        // The request or its answer was lost, or the server does not know the result.
        _ => Verdict {
            change: true,
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

fn text(error: &Error) -> String {
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
            (
                Code::InvalidArgument,
                "etcdserver: revision of auth store is old: auth: revision in header is old",
            ),
        ] {
            assert_eq!(server(code, text).outcome, Outcome::Unavailable, "{text}");
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
            assert!(!verdict.unsent, "{text}");
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
