//! What can go wrong with lock files, and what is known then.

use std::io;
use std::path::{Path, PathBuf};

use crate::contract::{BackendError, Outcome};

pub(super) const BACKEND: &str = "file";

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("`{}`: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "`{}` is not a lock file of this version of lockkit and was left as it is: move it away, or use another directory",
        .0.display()
    )]
    Foreign(PathBuf),
    #[error("`{}` is not a regular file: remove it, or use another directory", .0.display())]
    NotAFile(PathBuf),
    #[error("`{}` is not a directory: name another one", .0.display())]
    NotADirectory(PathBuf),
    #[error(
        "`{}` belongs to user {uid} and group {gid}, to whom this process may not give its new file ({source}): break the lock as that user or as root",
        path.display()
    )]
    Owner {
        path: PathBuf,
        uid: u32,
        gid: u32,
        source: io::Error,
    },
    #[error(
        "`{}` is the lock file of another name with the same hash: give one of the two locks another name",
        .0.display()
    )]
    OtherName(PathBuf),
    #[error("`{}` is replaced again and again by another process", .0.display())]
    Replaced(PathBuf),
    #[error("another process breaks a lock in `{}` at this moment", .0.display())]
    Breaking(PathBuf),
    #[error("the token in `{}` cannot grow any more: remove the file", .0.display())]
    LastToken(PathBuf),
    #[error(
        "`{}` is on a network file system ({kind}), whose locks end or fail unnoticed and may hold on one machine only: use a directory on a local disk, a store that serves several machines, or, if all that lock there run on this machine, `allow_network_fs=true` in the URL or `allow_network_fs(true)` of the builder",
        path.display()
    )]
    NetworkFs { path: PathBuf, kind: &'static str },
    #[error("the ticket was released before")]
    WasReleased,
    #[error("waiters of the file store poll, there is nothing to watch")]
    NoWatch,
}

impl Problem {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// No request that failed has had an effect: a lock that was taken on the way is closed again.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Io { source, .. } => io_outcome(source),
            Self::Replaced(_) | Self::Breaking(_) => Outcome::Unavailable,
            Self::Foreign(_)
            | Self::NotAFile(_)
            | Self::NotADirectory(_)
            | Self::Owner { .. }
            | Self::OtherName(_)
            | Self::LastToken(_)
            | Self::NetworkFs { .. }
            | Self::WasReleased
            | Self::NoWatch => Outcome::Rejected,
        }
    }
}

/// The error of an `operation` that a problem ended.
pub(super) fn during(operation: &'static str) -> impl FnOnce(Problem) -> BackendError {
    move |problem| BackendError::new(BACKEND, operation, problem.outcome(), problem)
}

fn io_outcome(error: &io::Error) -> Outcome {
    // The system's error for a symbolic link that it must not follow.
    if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return Outcome::Rejected;
    }
    match error.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::InvalidFilename
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::Unsupported => Outcome::Rejected,
        // A full disk, too many open files, a directory that is gone or read-only for a while.
        _ => Outcome::Unavailable,
    }
}
