//! Maps errors of the server and of the connection to an outcome: whether the request had an effect.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use lockkit_core::{BackendError, Outcome};
use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::config::{Address, RedisStoreBuilder};

/// What a request returns.
pub(crate) type Result<T, E = BackendError> = std::result::Result<T, E>;

pub(crate) const BACKEND: &str = "redis";

/// The server refused the request before any effect, because of a temporary state.
const PASSING: [&str; 12] = [
    "LOADING",
    "READONLY",
    "OOM",
    "BUSY",
    "NOREPLICAS",
    "MASTERDOWN",
    "MISCONF",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "UNBLOCKED",
    "NOSCRIPT",
    "LOCKKITPRIMARY",
];

/// What proxies reply in place of a server that they cannot reach: nutcracker the texts of the system.
const UNREACHED: [&str; 4] = [
    "Connection refused",
    "Host is down",
    "Network is unreachable",
    "No route to host",
];

/// The same for a server that a request has perhaps reached.
const UNANSWERED: [&str; 4] = [
    "Broken pipe",
    "Connection reset by peer",
    "Connection timed out",
    "unknown",
];

type Shared = Arc<dyn StdError + Send + Sync>;

/// An error in our words or the server's, without secrets. INV-14.
pub(crate) fn fault(
    operation: &'static str,
    outcome: Outcome,
    why: impl Into<String>,
) -> BackendError {
    BackendError::new(BACKEND, operation, outcome, why.into())
}

/// What the server or the connection said.
pub(crate) fn text_of(error: &BackendError) -> String {
    let source = StdError::source(error);
    source.map(ToString::to_string).unwrap_or_default()
}

/// The codes of a server that is not the primary, or not the one that it was.
const DEMOTED: [&str; 3] = ["READONLY", "MASTERDOWN", "LOCKKITPRIMARY"];

/// The codes of a server of a cluster that does not have the lock.
const ELSEWHERE: [&str; 2] = ["MOVED", "CLUSTERDOWN"];

/// The code of a step that failed after its first write.
pub(crate) const PARTLY: &str = "LOCKKITPARTLY";

/// What to do about a node of a cluster.
pub(crate) const CLUSTER: &str =
    "the server is a node of a Redis Cluster: write `redis+cluster://host1,host2,host3`";

/// Another node of a cluster has the lock. Nothing was done.
#[derive(Debug)]
pub(crate) struct Redirect<'a> {
    /// Whether the lock is only on its way there.
    pub(crate) is_ask: bool,
    /// Empty if it is the host that was asked.
    host: &'a str,
    port: u16,
}

impl<'a> Redirect<'a> {
    /// Of a failed step.
    pub(crate) fn of(error: &'a BackendError) -> Option<Self> {
        Self::read(StdError::source(error)?.downcast_ref()?)
    }

    /// The address of that node, as the one at `asked` names it.
    pub(crate) fn address(&self, asked: &Address) -> Address {
        node(self.host, self.port, asked)
    }

    fn read(error: &'a RedisError) -> Option<Self> {
        let (node, _) = error.redirect_node()?;
        let (host, port) = node.rsplit_once(':')?;
        Some(Self {
            is_ask: says(error, "ASK"),
            host,
            port: port.parse().ok()?,
        })
    }
}

/// The address of a node, as the one at `asked` names it: without a host it means its own.
pub(crate) fn node(host: &str, port: u16, asked: &Address) -> Address {
    match asked {
        Address::Tcp { host: own, .. } if host.is_empty() || host == "?" => {
            Address::tcp((own, port))
        }
        _ => Address::tcp((host, port)),
    }
}

/// The error of a request that may have been written.
pub(crate) fn of_request(
    config: &RedisStoreBuilder,
    operation: &'static str,
    error: &RedisError,
) -> BackendError {
    if config.clustered && Redirect::read(error).is_some() {
        return BackendError::new(BACKEND, operation, Outcome::Unavailable, error.clone());
    }
    let mut why = text(error);
    if error.is_io_error() {
        why = format!("{why} ({})", config.address);
    }
    fault(operation, outcome(error), why)
}

/// Why no connection could be made. No request was sent.
pub(crate) fn of_connecting(error: &RedisError) -> (Outcome, String) {
    let outcome = match outcome(error) {
        // A certificate that is not trusted, or no TLS at all.
        Outcome::Indeterminate if io_kind(error) == Some(io::ErrorKind::InvalidData) => {
            Outcome::Rejected
        }
        Outcome::Indeterminate => Outcome::Unavailable,
        known => known,
    };
    (outcome, text(error))
}

fn io_kind(error: &RedisError) -> Option<io::ErrorKind> {
    // The library shares its source behind a pointer.
    let shared = StdError::source(error).and_then(|source| source.downcast_ref::<Shared>());
    let source = shared.and_then(|shared| shared.downcast_ref::<io::Error>());
    source.map(io::Error::kind)
}

/// Whether an open connection has ended.
pub(crate) fn is_cut_off(error: &RedisError) -> bool {
    let never_open = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
    error.is_connection_dropped() && !io_kind(error).is_some_and(|it| never_open.contains(&it))
}

/// Whether the connection is to be made anew: it leads to a server that is not the primary, or was not meanwhile.
pub(crate) fn is_demoted(error: &RedisError) -> bool {
    DEMOTED.iter().any(|code| says(error, code))
}

/// Whether the server is not the one that has the lock, or has lost its cluster.
pub(crate) fn is_elsewhere(error: &RedisError) -> bool {
    ELSEWHERE.iter().any(|code| says(error, code))
}

pub(crate) fn is_no_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

fn outcome(error: &RedisError) -> Outcome {
    match error.kind() {
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::RESP3NotSupported
        | ErrorKind::UnexpectedReturnType => Outcome::Rejected,
        ErrorKind::Server(_) | ErrorKind::Extension => of_server(error),
        // The request or its reply was lost, or the reply cannot be read.
        _ => Outcome::Indeterminate,
    }
}

fn of_server(error: &RedisError) -> Outcome {
    let detail = error.detail().filter(|_| error.code() == Some("ERR"));
    let detail = detail.unwrap_or_default();
    if says(error, PARTLY) || UNANSWERED.contains(&detail) {
        return Outcome::Indeterminate;
    }
    let away = UNREACHED.contains(&detail) || detail.contains("max number of clients");
    if away || PASSING.iter().any(|code| says(error, code)) {
        return Outcome::Unavailable;
    }
    Outcome::Rejected
}

/// Whether the server replied with this code.
fn says(error: &RedisError, code: &str) -> bool {
    // Redis 6 wraps the error of a script's command in another text. Within that of a script it is no code.
    let wrapped = || {
        error.detail().is_some_and(|it| {
            it.starts_with("Error running script") && it.contains(&format!("-{code} "))
        })
    };
    match error.code() {
        Some("ERR") => wrapped(),
        Some(said) => said == code,
        None => false,
    }
}

fn text(error: &RedisError) -> String {
    let mut text = match (error.code(), error.detail()) {
        (Some("MOVED"), Some(detail)) => format!("MOVED {detail}: {CLUSTER}"),
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => of_system(&error.to_string()),
    };
    // Old servers and proxies repeat the arguments of an unknown command, which may be AUTH.
    if let Some((kept, _)) = text.split_once(" with args") {
        text.truncate(kept.trim_end_matches(',').len());
    }
    text
}

/// `connection refused` for `Connection refused (os error 111)`.
fn of_system(text: &str) -> String {
    let Some((text, _)) = text.split_once(" (os error") else {
        return text.to_owned();
    };
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_lowercase);
    first.chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use redis::parse_redis_value;

    use super::*;

    fn server(line: &str) -> RedisError {
        let value = parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        value.extract_error().unwrap_err()
    }

    #[test]
    fn temporary_refusals_are_unavailable() {
        for line in [
            "LOADING Redis is loading the dataset in memory",
            "READONLY You can't write against a read only replica. script: 00, on @user_script:3.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "BUSY Redis is busy running a script.",
            "NOREPLICAS Not enough good replicas to write.",
            "MASTERDOWN Link with MASTER is down",
            "MISCONF Errors writing to the AOF file",
            "ERR max number of clients reached",
            "ERR Connection refused",
            "ERR Error running script (call to f_0): @user_script:9: -OOM command not allowed",
            "ERR Error running script (call to f_0): @user_script:9: -READONLY You can't write",
        ] {
            assert_eq!(outcome(&server(line)), Outcome::Unavailable, "{line}");
        }
    }

    #[test]
    fn permanent_refusals_are_rejected() {
        for line in [
            "NOPERM this user has no permissions to run the 'evalsha' command",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "ERR unknown command 'EVALSHA'",
            "CROSSSLOT Keys in request don't hash to the same slot",
        ] {
            assert_eq!(outcome(&server(line)), Outcome::Rejected, "{line}");
        }
    }

    #[test]
    fn half_a_step_is_indeterminate() {
        for line in [
            "LOCKKITPARTLY the hold has perhaps changed hands: OOM command not allowed",
            // Of a proxy whose server has ended.
            "ERR unknown",
        ] {
            assert_eq!(outcome(&server(line)), Outcome::Indeterminate, "{line}");
        }
    }

    #[test]
    fn recognises_a_demoted_primary() {
        for (line, expected) in [
            (
                "READONLY You can't write against a read only replica.",
                true,
            ),
            ("MASTERDOWN Link with MASTER is down", true),
            (
                "ERR Error running script: @user_script:9: -READONLY You can't write",
                true,
            ),
            ("LOADING Redis is loading the dataset in memory", false),
            ("ERR no READONLY here", false),
        ] {
            assert_eq!(is_demoted(&server(line)), expected, "{line}");
        }
    }

    #[test]
    fn names_a_cluster() {
        let text = text(&server("MOVED 866 10.0.0.7:6379"));
        assert!(
            text.contains("10.0.0.7:6379") && text.contains("Cluster"),
            "{text}"
        );
    }

    #[test]
    fn lost_requests_are_indeterminate() {
        for kind in [
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::TimedOut,
            io::ErrorKind::ConnectionReset,
        ] {
            let error = RedisError::from(io::Error::from(kind));
            assert_eq!(outcome(&error), Outcome::Indeterminate);
            assert_eq!(of_connecting(&error).0, Outcome::Unavailable);
        }
    }

    #[test]
    fn does_not_repeat_arguments() {
        let error = server(
            "ERR unknown command `HELLO`, with args beginning with: `3` `AUTH` `u` `s3cret`",
        );
        assert_eq!(text(&error), "ERR unknown command `HELLO`");
    }
}
