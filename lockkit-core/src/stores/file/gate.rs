//! The gate of a lock: by it the waiter that waits longest keeps out those that came later.
//!
//! The gate is a file beside the lock file, locked with `flock(2)` by one waiter: the kernel opens it
//! when that process ends. In it stands since when that waiter waits. A ticket that came later and finds
//! the gate shut does not try to take the lock; a waiter that came earlier makes a gate of its own in its
//! place. No holder needs the gate, so that a gate that is lost or replaced costs a turn and never
//! exclusion.
//!
//! The waiter writes the file with every poll. A gate that was not written for a while belongs to a
//! waiter that is frozen, and is open.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use super::lock_file::{LockFile, TryLock, host_micros, written};
use super::problem::Problem;

const HEAD: &str = "lockkit gate, format 1, since ";
const DIGITS: usize = 20;

/// Whether a gate was written within `window`. A clock that was set back makes it old, too.
fn is_fresh(gate: &fs::Metadata, window: Duration) -> bool {
    let age = host_micros().abs_diff(written(gate));
    u128::from(age) <= window.as_micros()
}

/// A gate that this process has shut. It opens when it is dropped.
#[derive(Debug)]
pub(super) struct Gate {
    file: LockFile,
    /// The process that shut it. A child by `fork` has a copy and must not open it.
    pid: u32,
}

/// Whether a waiter keeps out a ticket that came at `since`. A gate that cannot be read is open.
pub(super) fn is_shut(path: &Path, since: u64, window: Duration) -> bool {
    // All that it costs an attempt where no client waits.
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return false;
    };
    is_fresh(&metadata, window) && matches!(earliest(path), Ok(Some(earliest)) if earliest < since)
}

/// Since when the waiter waits that has shut a gate.
fn earliest(path: &Path) -> Result<Option<u64>, Problem> {
    match LockFile::look(path)? {
        Some(gate) if gate.is_held()? => Ok(content(&gate)?.flatten()),
        _ => Ok(None),
    }
}

impl Gate {
    /// Shuts a gate to all that came after `since`; `None` if a waiter that came earlier has shut it.
    pub(super) fn shut(path: &Path, since: u64, window: Duration) -> Result<Option<Self>, Problem> {
        let mut file = LockFile::open_or_create(path)?;
        if file.try_lock()? == TryLock::Held {
            let passed =
                !is_fresh(&file.metadata()?, window) || content(&file)?.flatten() > Some(since);
            if !passed {
                return Ok(None);
            }
            remove(&file)?;
            file = LockFile::open_or_create(path)?;
        }
        let Some(gate) = Self::of(file)? else {
            return Ok(None);
        };
        Ok(gate.keep(since)?.then_some(gate))
    }

    /// The gate in a file; `None` if another waiter has it, or if it is no gate.
    pub(super) fn of(file: LockFile) -> Result<Option<Self>, Problem> {
        if file.try_lock()? != TryLock::Taken || content(&file)?.is_none() {
            return Ok(None);
        }
        let pid = std::process::id();
        Ok(Some(Self { file, pid }))
    }

    /// Keeps it shut for another while; returns whether other tickets see it.
    pub(super) fn keep(&self, since: u64) -> Result<bool, Problem> {
        let content = format!("{HEAD}{since:0DIGITS$}\n");
        let written = self.file.file.write_all_at(content.as_bytes(), 0);
        written.map_err(|error| Problem::io(&self.file.path, error))?;
        self.file.is_in_place()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // Removed while it is locked: who locks it afterwards finds that it is not at its path.
            let _ = remove(&self.file);
            let _ = self.file.unlock();
        }
    }
}

/// Since when the waiter of a gate waits, if that is written already; `None` for the file of another program, which
/// stays as it is.
fn content(file: &LockFile) -> Result<Option<Option<u64>>, Problem> {
    let mut bytes = [0; HEAD.len() + DIGITS + 2];
    let read = file.file.read_at(&mut bytes, 0);
    let len = read.map_err(|error| Problem::io(&file.path, error))?;
    if len == 0 {
        return Ok(Some(None));
    }
    let content = String::from_utf8_lossy(&bytes[..len]);
    let since = content.strip_prefix(HEAD).map(str::trim_end);
    Ok(since.and_then(|since| since.parse().ok()).map(Some))
}

/// Removes a gate that is still at its path.
fn remove(file: &LockFile) -> Result<(), Problem> {
    if content(file)?.is_some() && file.is_in_place()? {
        fs::remove_file(&file.path).map_err(|error| Problem::io(&file.path, error))?;
    }
    Ok(())
}
