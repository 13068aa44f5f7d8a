//! The file of a lock: opening it, locking it, and knowing whether it is still at its path.
//!
//! The lock is `flock(2)` on the file, as [`File::try_lock`] takes it: it belongs to the open file,
//! so that two openings in one process exclude each other, and the kernel ends it with the process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::problem::Problem;
use super::record::{Entry, MAX_LEN, Record};
use crate::contract::LockName;

/// The result of an attempt to lock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TryLock {
    /// The lock is ours.
    Taken,
    /// Another open file has it.
    Held,
    /// Another process holds a shared lock: it looks whether the lock is held, or is `flock -s`.
    Shared,
}

#[derive(Debug)]
pub(super) struct LockFile {
    /// The file, open for reading and, unless it is only looked at, for writing.
    pub(super) file: File,
    /// Where it was opened.
    pub(super) path: PathBuf,
    /// Its file system, and its number there.
    id: (u64, u64),
}

impl LockFile {
    /// Opens a lock file, or makes it.
    pub(super) fn open_or_create(path: &Path) -> Result<Self, Problem> {
        // Once more where another process made the file between our two looks.
        for _ in 0..2 {
            if let Some(lock_file) = Self::open(path)? {
                return Ok(lock_file);
            }
            if let Some(lock_file) = Self::create(path)? {
                return Ok(lock_file);
            }
        }
        Err(Problem::Replaced(path.to_owned()))
    }

    /// Opens a lock file; `None` if there is none.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, Problem> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        Self::open_with(path, &mut options, io::ErrorKind::NotFound)
    }

    /// Opens a lock file only to look at it; `None` if there is none.
    pub(super) fn look(path: &Path) -> Result<Option<Self>, Problem> {
        let mut options = OpenOptions::new();
        Self::open_with(path, options.read(true), io::ErrorKind::NotFound)
    }

    /// Makes a file; `None` if there is one.
    pub(super) fn create(path: &Path) -> Result<Option<Self>, Problem> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        Self::open_with(path, &mut options, io::ErrorKind::AlreadyExists)
    }

    /// `None` if it fails with the error `none`.
    fn open_with(
        path: &Path,
        options: &mut OpenOptions,
        none: io::ErrorKind,
    ) -> Result<Option<Self>, Problem> {
        // Neither a link that leads out of the directory nor a pipe without a writer may be
        // followed or waited for.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = options.custom_flags(flags.bits().cast_signed()).open(path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == none => return Ok(None),
            Err(error) => return Err(Problem::io(path, error)),
        };
        let metadata = file.metadata().map_err(|error| Problem::io(path, error))?;
        let (path, id) = (path.to_owned(), (metadata.dev(), metadata.ino()));
        if metadata.is_file() {
            Ok(Some(Self { file, path, id }))
        } else {
            Err(Problem::NotAFile(path))
        }
    }

    /// The owner, group, permissions and times of the file.
    pub(super) fn metadata(&self) -> Result<fs::Metadata, Problem> {
        self.file.metadata().map_err(|error| self.failed(error))
    }

    /// Whether this file is still the one at its path.
    pub(super) fn is_in_place(&self) -> Result<bool, Problem> {
        match fs::symlink_metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) == self.id),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Takes the lock if it is free.
    ///
    /// [`is_held`](Self::is_held) of another process holds a shared lock for an instant. An attempt
    /// that failed because of it takes a shared lock too, which only a true holder refuses.
    pub(super) fn try_lock(&self) -> Result<TryLock, Problem> {
        if self.granted(self.file.try_lock())? {
            return Ok(TryLock::Taken);
        }
        Ok(match self.is_held()? {
            true => TryLock::Held,
            false => TryLock::Shared,
        })
    }

    pub(super) fn is_held(&self) -> Result<bool, Problem> {
        let free = self.granted(self.file.try_lock_shared())?;
        if free {
            self.unlock()?;
        }
        Ok(!free)
    }

    fn granted(&self, answer: Result<(), TryLockError>) -> Result<bool, Problem> {
        match answer {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(self.failed(error)),
        }
    }

    /// Gives the lock up at once, also where a child process between `fork` and `exec` still has a
    /// copy of the open file.
    pub(super) fn unlock(&self) -> Result<(), Problem> {
        self.file.unlock().map_err(|error| self.failed(error))
    }

    /// Reads a file that must be empty or a lock file.
    pub(super) fn read(&self) -> Result<Record, Problem> {
        let mut bytes = [0; MAX_LEN];
        let mut len = 0;
        while len < MAX_LEN {
            match self.file.read_at(&mut bytes[len..], len as u64) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Record::parse(&bytes[..len]).ok_or_else(|| Problem::Foreign(self.path.clone()))
    }

    /// Reads a file that must be empty or the lock file of `name`.
    pub(super) fn read_of(&self, name: &LockName) -> Result<Record, Problem> {
        let record = self.read()?;
        if record.name().is_some_and(|other| other != name) {
            return Err(Problem::OtherName(self.path.clone()));
        }
        Ok(record)
    }

    /// Writes what follows `before`, which was read from this file since it was locked.
    pub(super) fn write(&self, before: &Record, next: Entry) -> Result<(), Problem> {
        let (bytes, at) = before.next(next);
        let written = self.file.write_all_at(&bytes, at as u64);
        written.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> Problem {
        Problem::io(&self.path, error)
    }
}

/// When a file was written last, in microseconds of the machine's wall clock.
pub(super) fn written(metadata: &fs::Metadata) -> u64 {
    let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
    let nanos = u64::try_from(metadata.mtime_nsec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000) + nanos / 1_000
}

/// The machine's wall clock in microseconds: the floor of tokens and the age of gates, never the measure of a lease.
#[expect(
    clippy::disallowed_methods,
    reason = "all holders of this store run on this machine, so that its clock is the store's own clock; no lease depends on it"
)]
pub(super) fn host_micros() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(0))
}
