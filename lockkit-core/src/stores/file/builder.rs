//! Options of the file store, and the check of its directory.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::FileStore;
use super::network::network_fs;
use super::problem::{Problem, during};
use crate::contract::{BackendError, PollRange};

/// Makes a [`FileStore`] with options.
#[derive(Clone, Debug)]
#[must_use]
pub struct FileStoreBuilder {
    dir: PathBuf,
    poll: PollRange,
    allow_network_fs: bool,
}

impl FileStore {
    /// Opens a directory of locks, and makes it if it is missing.
    ///
    /// # Errors
    /// As [`FileStoreBuilder::build`].
    pub fn new(dir: impl AsRef<Path>) -> Result<Self, BackendError> {
        Self::builder(dir).build()
    }

    /// Sets options first.
    pub fn builder(dir: impl AsRef<Path>) -> FileStoreBuilder {
        FileStoreBuilder {
            dir: dir.as_ref().to_owned(),
            poll: PollRange::new(Duration::from_millis(5), Duration::from_millis(200)),
            allow_network_fs: false,
        }
    }
}

impl FileStoreBuilder {
    /// Sets the pauses of waiters between two polls; 5 ms to 200 ms by default.
    pub const fn poll(mut self, poll: PollRange) -> Self {
        self.poll = poll;
        self
    }

    /// Accepts a directory on a network file system, for use from one machine only.
    ///
    /// NFS and its kin emulate `flock(2)` by other means, or locally without telling: a server that
    /// restarts may drop the lock of a holder that goes on.
    pub const fn allow_network_fs(mut self, allow: bool) -> Self {
        self.allow_network_fs = allow;
        self
    }

    /// Makes the directory if it is missing, readable by its owner only, and the store.
    ///
    /// # Errors
    /// - [`Rejected`](crate::Outcome::Rejected) if the path is no directory or may not be made, or
    ///   if it is on a network file system.
    /// - [`Unavailable`](crate::Outcome::Unavailable) if the system fails otherwise.
    pub fn build(self) -> Result<FileStore, BackendError> {
        self.prepare().map_err(during("open"))
    }

    fn prepare(self) -> Result<FileStore, Problem> {
        // Made absolute now: a later change of the working directory must not split the locks.
        let dir = std::path::absolute(&self.dir).map_err(|error| Problem::io(&self.dir, error))?;
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&dir);
        made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Problem::NotADirectory(dir.clone()),
            _ => Problem::io(&dir, error),
        })?;
        if !self.allow_network_fs
            && let Some(kind) = network_fs(&dir)
        {
            return Err(Problem::NetworkFs { path: dir, kind });
        }
        Ok(FileStore {
            dir,
            poll: self.poll,
            tickets: Mutex::default(),
        })
    }
}
