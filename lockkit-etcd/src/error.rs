//! What an error of the server or of the connection says about the effect of a request.

use std::error::Error as StdError;

use etcd_client::Error;
use lockkit_core::{BackendError, Outcome};
use tonic::{Code, ConnectError, Status};

pub(crate) const BACKEND: &str = "etcd";

/// What the server says when it has not carried out a request, in a state that passes.
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
    /// The lease that it named has ended: nothing was done.
    LeaseGone,
    /// Anything else.
    Other(BackendError),
}

/// What is known of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    /// It never left this machine: another server may be asked at once.
    pub(crate) unsent: bool,
    /// Another server, or a new connection, may do better.
    pub(crate) change: bool,
    pub(crate) lease_gone: bool,
    /// The token of the user is to be made anew.
    pub(crate) stale_token: bool,
}

/// Those that only read: whatever became of them, they had no effect.
const READING: [&str; 4] = ["connect", "inspect", "list", "watch"];

/// An error in our words or the server's, without anything that could be a secret. INV-14.
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
    /// The error for a caller who named no lease.
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
        // A transport that cannot be built: certificates that cannot be read, for example.
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
    // A server that is full says so of what it has carried out, too; an answer may be too long to be read.
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
        // Lost on the way, there or back; or a server that does not know what becomes of it.
        _ => Verdict {
            change: true,
            ..unknown
        },
    }
}

/// Whether the connection could not even be made.
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
    fn refusals_that_pass_may_be_tried_again() {
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
    fn refusals_that_stay_are_rejected() {
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
    fn what_a_leader_may_have_carried_out_is_not_known() {
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
    fn an_ended_lease_is_told_apart() {
        let verdict = server(Code::NotFound, "etcdserver: requested lease not found");
        assert!(verdict.lease_gone);
        let gone = Error::LeaseKeepAliveError("lease not found".to_owned());
        assert!(judge(&gone).lease_gone);
    }
}
