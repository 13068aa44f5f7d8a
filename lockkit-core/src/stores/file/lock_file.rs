//! The file of a lock: opening it, locking it, and knowing whether it is still at its path.
//!
//! The lock is `flock(2)` on the file, as [`File::try_lock`] takes it: it belongs to the open file,
//! so that two openings in one process exclude each other, and the kernel ends it with the process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

use super::problem::Problem;

/// How often an attempt that met nothing but the looks of others tries again.
const LOOKS: u32 = 8;

/// Identifies a file whatever its path. Not reused while the file is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            number: metadata.ino(),
        }
    }

    /// The file that is at `path` now; `None` if there is none.
    pub(super) fn at(path: &Path) -> Result<Option<Self>, Problem> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Problem::io(path, error)),
        }
    }
}

/// The answer to an attempt to lock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TryLock {
    /// The lock is ours.
    Taken,
    /// Another open file has it.
    Held,
    /// Another process holds a shared lock: it looks whether the lock is held, or is `flock -s`.
    Shared,
}

/// An open lock file.
#[derive(Debug)]
pub(super) struct LockFile {
    /// The file, open for reading and, unless it is only looked at, for writing.
    pub(super) file: File,
    /// Which file it is.
    pub(super) inode: Inode,
}

impl LockFile {
    /// Opens a lock file, or makes it.
    pub(super) fn open_or_create(path: &Path) -> Result<Self, Problem> {
        // Once more where another process made the file between our two looks.
        for _ in 0..2 {
            if let Some(lock_file) = Self::open(path, OpenOptions::new().read(true).write(true))? {
                return Ok(lock_file);
            }
            if let Some(lock_file) = Self::create(path)? {
                return Ok(lock_file);
            }
        }
        Err(Problem::Replaced(path.to_owned()))
    }

    /// Opens a lock file that exists.
    pub(super) fn open_existing(path: &Path) -> Result<Option<Self>, Problem> {
        Self::open(path, OpenOptions::new().read(true).write(true))
    }

    /// Opens a lock file that exists, only to look at it.
    pub(super) fn look(path: &Path) -> Result<Option<Self>, Problem> {
        Self::open(path, OpenOptions::new().read(true))
    }

    /// Makes a file; `None` if there is one.
    pub(super) fn create(path: &Path) -> Result<Option<Self>, Problem> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        match options.open(path) {
            Ok(file) => Self::of(path, file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(Problem::io(path, error)),
        }
    }

    fn open(path: &Path, options: &mut OpenOptions) -> Result<Option<Self>, Problem> {
        // Neither a link that leads out of the directory nor a pipe without a writer may be
        // followed or waited for.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        match options.custom_flags(flags.bits().cast_signed()).open(path) {
            Ok(file) => Self::of(path, file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Problem::io(path, error)),
        }
    }

    fn of(path: &Path, file: File) -> Result<Self, Problem> {
        let metadata = file.metadata().map_err(|error| Problem::io(path, error))?;
        if !metadata.is_file() {
            return Err(Problem::NotAFile(path.to_owned()));
        }
        let inode = Inode::of(&metadata);
        Ok(Self { file, inode })
    }

    /// Whether this file is still the one at `path`.
    pub(super) fn is_at(&self, path: &Path) -> Result<bool, Problem> {
        Ok(Inode::at(path)? == Some(self.inode))
    }

    /// Takes the lock if it is free.
    ///
    /// [`is_held`](Self::is_held) of another process holds a shared lock for an instant. An attempt
    /// that failed because of it takes a shared lock too, which only a true holder refuses, and
    /// tries again.
    pub(super) fn try_lock(&self, path: &Path) -> Result<TryLock, Problem> {
        for _ in 0..LOOKS {
            if granted(path, self.file.try_lock())? {
                return Ok(TryLock::Taken);
            }
            if !granted(path, self.file.try_lock_shared())? {
                return Ok(TryLock::Held);
            }
            self.unlock(path)?;
            std::thread::yield_now();
        }
        Ok(TryLock::Shared)
    }

    /// Whether the lock is held.
    pub(super) fn is_held(&self, path: &Path) -> Result<bool, Problem> {
        let free = granted(path, self.file.try_lock_shared())?;
        if free {
            self.unlock(path)?;
        }
        Ok(!free)
    }

    /// Gives the lock up at once, also where a child process between `fork` and `exec` still has a
    /// copy of the open file.
    pub(super) fn unlock(&self, path: &Path) -> Result<(), Problem> {
        self.file.unlock().map_err(|error| Problem::io(path, error))
    }
}

fn granted(path: &Path, answer: Result<(), TryLockError>) -> Result<bool, Problem> {
    match answer {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(Problem::io(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::file::scratch::Scratch;

    #[test]
    fn two_openings_exclude_each_other() {
        let scratch = Scratch::new();
        let path = scratch.path("a.lock");
        let first = LockFile::open_or_create(&path).unwrap();
        let second = LockFile::open_or_create(&path).unwrap();
        assert_eq!(first.try_lock(&path).unwrap(), TryLock::Taken);
        assert_eq!(second.try_lock(&path).unwrap(), TryLock::Held);
        assert!(second.is_held(&path).unwrap());
        first.unlock(&path).unwrap();
        assert!(!second.is_held(&path).unwrap());
        assert_eq!(second.try_lock(&path).unwrap(), TryLock::Taken);
    }

    /// A process that looks all the time must not make a free lock appear held.
    #[test]
    fn looks_do_not_disturb_attempts() {
        let scratch = Scratch::new();
        let path = scratch.path("a.lock");
        let lock_file = LockFile::open_or_create(&path).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let eye = LockFile::look(&path).unwrap().unwrap();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    eye.is_held(&path).unwrap();
                }
            });
            let seen: Vec<TryLock> = (0..20_000)
                .map(|_| {
                    let result = lock_file.try_lock(&path).unwrap();
                    lock_file.unlock(&path).unwrap();
                    result
                })
                .collect();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(!seen.contains(&TryLock::Held));
            assert!(seen.contains(&TryLock::Taken));
        });
    }

    #[test]
    fn a_replaced_file_is_noticed() {
        let scratch = Scratch::new();
        let path = scratch.path("a.lock");
        let lock_file = LockFile::open_or_create(&path).unwrap();
        assert!(lock_file.is_at(&path).unwrap());
        fs::rename(&path, scratch.path("b")).unwrap();
        assert!(!lock_file.is_at(&path).unwrap());
        LockFile::create(&path).unwrap().unwrap();
        assert!(!lock_file.is_at(&path).unwrap());
    }

    #[test]
    fn links_pipes_and_directories_are_refused() {
        let scratch = Scratch::new();
        std::os::unix::fs::symlink(scratch.path("elsewhere"), scratch.path("link")).unwrap();
        fs::create_dir(scratch.path("directory")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            scratch.path("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        for name in ["link", "directory", "pipe"] {
            let answer = LockFile::open_or_create(&scratch.path(name));
            assert_eq!(
                answer.map(|_| ()).map_err(|problem| problem.outcome()),
                Err(crate::Outcome::Rejected),
                "{name}"
            );
        }
        assert!(!scratch.path("elsewhere").exists());
    }
}
