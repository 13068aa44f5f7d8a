//! Errors of the server and of connections, and what they say about the effect of a request.

use std::error::Error as StdError;

use etcd_client::Error;
use lockkit_core::{BackendError, Outcome};
use tonic::{Code, ConnectError, Status};

/// What a request returns.
pub(crate) type Result<T, E = BackendError> = std::result::Result<T, E>;

pub(crate) const BACKEND: &str = "etcd";

/// Texts of the server for requests that it did not execute, in a state that passes.
const PASSING: [&str; 3] = ["not capable", "too many requests", "unhealthy cluster"];
/// The same, where the user needs a new token, or another server may serve it.
const ELSEWHERE: [&str; 3] = ["no leader", "learner", "revision of auth store is old"];

#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// The lease of the request has ended. Nothing was done.
    LeaseGone,
    /// Anything else.
    Other(BackendError),
}

/// The meaning of an error other than the end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    /// Another server, or a new connection with a new token of the user, may succeed.
    pub(crate) reconnect: bool,
}

impl Verdict {
    /// The request was not executed, so that it may be sent again at once, elsewhere.
    pub(crate) fn again(self) -> bool {
        self.reconnect && self.outcome == Outcome::Unavailable
    }
}

/// An error in our words or the server's, without secrets. INV-14.
pub(crate) fn fault(
    operation: &'static str,
    outcome: Outcome,
    why: impl Into<String>,
) -> BackendError {
    BackendError::new(BACKEND, operation, outcome, why.into())
}

pub(crate) fn unreadable(operation: &'static str) -> BackendError {
    let why = "the server's answer cannot be understood";
    fault(operation, Outcome::Indeterminate, why)
}

impl Failed {
    /// The error for a request without a lease.
    pub(crate) fn into_error(self, operation: &'static str) -> BackendError {
        match self {
            Self::LeaseGone => fault(operation, Outcome::Unavailable, "the session has ended"),
            Self::Other(error) => error,
        }
    }

    /// The error of a transaction with work of the caller, which may use leases of its own.
    pub(crate) fn of_work(self, operation: &'static str) -> BackendError {
        match self {
            Self::LeaseGone => {
                let why = "nothing was done: a lease of the transaction has ended";
                fault(operation, Outcome::Rejected, why)
            }
            Self::Other(error) => error,
        }
    }
}

/// The meaning of an error; `None` if the lease of the request has ended.
pub(crate) fn judge(error: &Error) -> Option<Verdict> {
    let (outcome, reconnect) = match error {
        Error::GRpcStatus(status) => judge_status(status)?,
        Error::LeaseKeepAliveError(why) if why.contains("lease not found") => return None,
        // The transport cannot be built, for example because a certificate cannot be read.
        Error::TransportError(_)
        | Error::InvalidArgs(_)
        | Error::IoError(_)
        | Error::InvalidUri(_)
        | Error::InvalidMetadataValue(_)
        | Error::Utf8Error(_) => (Outcome::Rejected, false),
        _ => (Outcome::Indeterminate, true),
    };
    Some(Verdict { outcome, reconnect })
}

fn judge_status(status: &Status) -> Option<(Outcome, bool)> {
    let said = |text: &str| status.message().contains(text);
    let unsent = causes(status).any(|error| error.is::<ConnectError>());
    Some(match status.code() {
        // No connection could be made.
        _ if unsent => (Outcome::Unavailable, true),
        Code::NotFound if said("lease not found") => return None,
        _ if ELSEWHERE.into_iter().any(said) => (Outcome::Unavailable, true),
        _ if PASSING.into_iter().any(said) => (Outcome::Unavailable, false),
        // A full server says this of requests that it did execute, too.
        _ if said("database space exceeded") => (Outcome::Indeterminate, false),
        // The request is longer than a server takes.
        Code::ResourceExhausted if said("received message larger than max") => {
            (Outcome::Rejected, false)
        }
        // It asks for a revision that was compacted or is still to come, or for a lease that is too long.
        Code::OutOfRange if said("etcdserver") => (Outcome::Rejected, false),
        // The answer is too long to be read.
        Code::OutOfRange => (Outcome::Indeterminate, false),
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Unimplemented => (Outcome::Rejected, false),
        // The user needs a new token.
        Code::Unauthenticated => (Outcome::Rejected, true),
        // The request or its answer was lost, or the server does not know the result.
        _ => (Outcome::Indeterminate, true),
    })
}

fn causes(status: &Status) -> impl Iterator<Item = &(dyn StdError + 'static)> {
    std::iter::successors(StdError::source(status), |&error| error.source())
}

/// The text of an error, with its causes.
pub(crate) fn text(error: &Error) -> String {
    match error {
        Error::GRpcStatus(status) if status.message().is_empty() => status.code().to_string(),
        Error::GRpcStatus(status) => {
            // The outermost error often says no more than "transport error".
            let mut text = status.message().to_owned();
            for more in causes(status).map(ToString::to_string) {
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
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
        judge(&Error::GRpcStatus(Status::new(code, text))).unwrap()
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
            assert!(verdict.again(), "{text}");
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
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision has been compacted",
            ),
            (
                Code::OutOfRange,
                "etcdserver: mvcc: required revision is a future revision",
            ),
            (Code::OutOfRange, "etcdserver: too large lease TTL"),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (3145769 vs. 2097152)",
            ),
        ] {
            assert_eq!(server(code, text).outcome, Outcome::Rejected, "{text}");
        }
    }

    #[test]
    fn connection_is_kept_after_a_request_that_no_server_takes() {
        for (code, text) in [
            (Code::OutOfRange, "etcdserver: too large lease TTL"),
            (
                Code::ResourceExhausted,
                "grpc: received message larger than max (3145769 vs. 2097152)",
            ),
        ] {
            assert!(!server(code, text).reconnect, "{text}");
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
            assert!(!verdict.again(), "{text}");
        }
    }

    #[test]
    fn ended_lease_is_recognized() {
        let text = "etcdserver: requested lease not found";
        let gone = Error::GRpcStatus(Status::new(Code::NotFound, text));
        assert_eq!(judge(&gone), None);
        let gone = Error::LeaseKeepAliveError("lease not found".to_owned());
        assert_eq!(judge(&gone), None);
    }
}
