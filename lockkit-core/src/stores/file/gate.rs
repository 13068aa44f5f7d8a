//! The gate of a lock: by it a waiter keeps newcomers out.
//!
//! The gate is a file beside the lock file, locked with `flock(2)` by one waiter: the kernel opens it
//! when that process ends. A newcomer that finds it shut does not try to take the lock. No holder needs
//! the gate, so that a gate that is lost or replaced costs a turn and never exclusion.
//!
//! The waiter writes the file with every poll. A gate that was not written for a while belongs to a
//! waiter that is frozen, and is open.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use super::lock_file::{LockFile, TryLock, written};
use super::problem::Problem;

const CONTENT: &[u8] = b"lockkit gate, format 1: a waiter keeps newcomers out\n";

/// How long a gate stays shut that its waiter does not write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    /// The wall clock of the machine, which also dates its files.
    pub(super) now: fn() -> u64,
    pub(super) window: Duration,
}

impl Limit {
    /// Whether the waiter wrote its gate lately. A clock that was set back makes a gate old, too.
    fn is_fresh(self, gate: &fs::Metadata) -> bool {
        let age = (self.now)().abs_diff(written(gate));
        u128::from(age) <= self.window.as_micros()
    }
}

/// A gate that this process has shut. It opens when it is dropped.
#[derive(Debug)]
pub(super) struct Gate {
    file: LockFile,
    /// The process that shut it. A child by `fork` has a copy and must not open it.
    pid: u32,
}

/// Whether a waiter keeps newcomers out. A gate that cannot be read is open.
pub(super) fn is_shut(path: &Path, limit: Limit) -> bool {
    // All that it costs an attempt where no client waits.
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return false;
    };
    let gate = || LockFile::look(path).ok().flatten();
    limit.is_fresh(&metadata) && gate().is_some_and(|gate| gate.is_held().unwrap_or(false))
}

impl Gate {
    /// Shuts a gate; `None` if another waiter has shut it.
    pub(super) fn shut(path: &Path, limit: Limit) -> Result<Option<Self>, Problem> {
        let file = LockFile::open_or_create(path)?;
        if file.try_lock()? == TryLock::Held {
            if !limit.is_fresh(&file.metadata()?) {
                // Its waiter is frozen. The next poll makes a new gate.
                remove(&file)?;
            }
            return Ok(None);
        }
        let Some(gate) = Self::of(file)? else {
            return Ok(None);
        };
        Ok(gate.keep()?.then_some(gate))
    }

    /// The gate in a file; `None` if another waiter has it, or if it is no gate.
    pub(super) fn of(file: LockFile) -> Result<Option<Self>, Problem> {
        if file.try_lock()? != TryLock::Taken || !is_gate(&file)? {
            return Ok(None);
        }
        let pid = std::process::id();
        Ok(Some(Self { file, pid }))
    }

    /// Keeps it shut for another while; returns whether newcomers see it.
    pub(super) fn keep(&self) -> Result<bool, Problem> {
        let written = self.file.file.write_all_at(CONTENT, 0);
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

/// Whether a file has the content of a gate, or the beginning of it. Files of other programs stay as they
/// are.
fn is_gate(file: &LockFile) -> Result<bool, Problem> {
    let mut bytes = [0; CONTENT.len() + 1];
    let read = file.file.read_at(&mut bytes, 0);
    let len = read.map_err(|error| Problem::io(&file.path, error))?;
    Ok(CONTENT.starts_with(&bytes[..len]))
}

/// Removes a gate that is still at its path.
fn remove(file: &LockFile) -> Result<(), Problem> {
    if is_gate(file)? && file.is_in_place()? {
        fs::remove_file(&file.path).map_err(|error| Problem::io(&file.path, error))?;
    }
    Ok(())
}
