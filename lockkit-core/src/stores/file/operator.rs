//! What operators do: look, list, break, purge.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::coop::consume_budget;

use super::FileStore;
use super::gate::Gate;
use super::hold::next_token;
use super::lock_file::{LockFile, TryLock, host_micros, written};
use super::names::{self, Decoded};
use super::problem::Problem;
use super::record::{Entry, Record};
use crate::contract::{LockName, LockState, Outcome};

/// The new file of a lock that is being broken, before it is in place. No lock has this name.
const FRESH: &str = ".broken";
/// How often a look is repeated that came between locking and writing.
const LOOKS: u32 = 3;
/// How often a breaker asks whether another one has done.
const TURNS: u32 = 400;

impl FileStore {
    /// The record in the lock's file if the lock is held.
    pub(super) async fn look(&self, name: &LockName) -> Result<Option<Record>, Problem> {
        let mut seen = None;
        for _ in 0..LOOKS {
            let Some(lock_file) = LockFile::look(&self.path(name))? else {
                return Ok(None);
            };
            if !lock_file.is_held()? {
                return Ok(None);
            }
            let record = seen.insert(lock_file.read_of(name)?);
            if record.holder().is_some() {
                break;
            }
            // Locked, and without a holder: one will be written in a moment, or it is another program.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(seen)
    }

    /// Waits until no other process breaks a lock or removes a file in this directory; the turn ends
    /// when the result is dropped.
    pub(super) async fn turn(&self) -> Result<File, Problem> {
        let turn = File::open(&self.dir).map_err(|error| Problem::io(&self.dir, error))?;
        for _ in 0..TURNS {
            match turn.try_lock() {
                Ok(()) => return Ok(turn),
                Err(TryLockError::Error(error)) => return Err(Problem::io(&self.dir, error)),
                Err(TryLockError::WouldBlock) => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        Err(Problem::Breaking(self.dir.clone()))
    }

    /// Puts a new file with a larger token in the place of one that is locked. Needs the
    /// turn: two breakers would otherwise put two files there.
    pub(super) fn replace(&self, name: &LockName) -> Result<Option<LockState>, Problem> {
        let path = self.path(name);
        let Some(old) = LockFile::open(&path)? else {
            return Ok(None);
        };
        if !old.is_held()? {
            return Ok(None);
        }
        let before = old.read_of(name)?;
        let fresh = self.fresh_like(&old)?;
        // Locked until its token is settled: no process can take it in between.
        fresh.try_lock()?;
        let token = next_token(&before, &path)?.get();
        fresh.write(&Record::default(), Entry::free(name, token))?;
        fs::rename(&fresh.path, &path).map_err(|error| Problem::io(&path, error))?;
        // Since we read it, others may have held the old file in turn. Each of them wrote its token
        // before it found the file still in place, so that all their tokens are in it by now.
        let last = old.read_of(name)?.token();
        if last >= token {
            fresh.write(&fresh.read()?, Entry::free(name, last))?;
        }
        fresh.unlock()?;
        Ok(Some(before.state(name)))
    }

    /// Makes an empty file outside of all names, with the owner, group and permissions of `old`: a user who
    /// could lock the one can lock the other.
    fn fresh_like(&self, old: &LockFile) -> Result<LockFile, Problem> {
        let path = self.dir.join(FRESH);
        // A breaker that crashed has left it.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Problem::io(&path, error));
            }
            _ => {}
        }
        let fresh = LockFile::create(&path)?.ok_or_else(|| Problem::Breaking(self.dir.clone()))?;
        let (wanted, made) = (old.metadata()?, fresh.metadata()?);
        let (uid, gid) = (wanted.uid(), wanted.gid());
        if (made.uid(), made.gid()) != (uid, gid)
            && let Err(source) = fchown(&fresh.file, Some(uid), Some(gid))
        {
            let _ = fs::remove_file(&path);
            return Err(Problem::Owner {
                path: old.path.clone(),
                uid,
                gid,
                source,
            });
        }
        let mode = fresh.file.set_permissions(wanted.permissions());
        mode.map_err(|error| Problem::io(&path, error))?;
        Ok(fresh)
    }

    /// The locks that are held and begin with `prefix`, by name; and the entries that are named like
    /// lock files and cannot be read as such.
    pub(super) async fn survey(
        &self,
        prefix: &str,
    ) -> Result<(Vec<LockState>, Vec<PathBuf>), Problem> {
        let (mut names, mut odd) = self.names().await?;
        names.retain(|name| name.as_str().starts_with(prefix));
        names.sort();
        let mut states = Vec::new();
        for name in names {
            consume_budget().await;
            match self.look(&name).await {
                Ok(Some(record)) => states.push(record.state(&name)),
                Ok(None) => {}
                Err(problem) => pass_over(&mut odd, self.path(&name), problem)?,
            }
        }
        odd.sort();
        Ok((states, odd))
    }

    /// Removes the files of locks that are free and were not written for `older_than`, and as old gates of
    /// waiters that died. Returns how many locks there were.
    pub(super) async fn remove_unused(&self, older_than: Duration) -> Result<u64, Problem> {
        let mut removed = 0;
        self.remove_gates(older_than).await?;
        let (names, mut odd) = self.names().await?;
        for name in names {
            consume_budget().await;
            let path = self.path(&name);
            match LockFile::open(&path) {
                Ok(Some(lock_file)) if is_old(&lock_file, older_than)? => {
                    let _turn = self.turn().await?;
                    removed += u64::from(remove_free(&lock_file)?);
                }
                Ok(_) => {}
                Err(problem) => pass_over(&mut odd, path, problem)?,
            }
        }
        Ok(removed)
    }

    /// Removes gates that no waiter has shut. One that cannot be removed does no harm.
    async fn remove_gates(&self, older_than: Duration) -> Result<(), Problem> {
        let at_dir = |error| Problem::io(&self.dir, error);
        for entry in fs::read_dir(&self.dir).map_err(at_dir)? {
            consume_budget().await;
            let path = entry.map_err(at_dir)?.path();
            if names::is_gate(&path)
                && let Ok(Some(file)) = LockFile::open(&path)
                && is_old(&file, older_than)?
            {
                // It is removed when it is dropped.
                drop(Gate::of(file));
            }
        }
        Ok(())
    }

    /// The names of all lock files in the directory; and the entries that are named like one and have no
    /// readable name.
    async fn names(&self) -> Result<(Vec<LockName>, Vec<PathBuf>), Problem> {
        let at_dir = |error| Problem::io(&self.dir, error);
        let (mut names, mut odd) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.dir).map_err(at_dir)? {
            // So that other tasks get their turn.
            consume_budget().await;
            let path = entry.map_err(at_dir)?.path();
            let file_name = path.file_name().and_then(|name| name.to_str());
            match file_name.and_then(names::decode) {
                Some(Decoded::Name(name)) => names.push(name),
                Some(Decoded::Cut) => match self.name_inside(&path) {
                    Ok(name) => names.extend(name),
                    Err(problem) => pass_over(&mut odd, path, problem)?,
                },
                None => {}
            }
        }
        Ok((names, odd))
    }

    /// The name in a lock file; `None` if it has none, or one that belongs to another file, or if the file
    /// has just gone.
    fn name_inside(&self, path: &Path) -> Result<Option<LockName>, Problem> {
        let Some(lock_file) = LockFile::look(path)? else {
            return Ok(None);
        };
        let name = lock_file.read()?.name().cloned();
        Ok(name.filter(|name| self.path(name) == path))
    }
}

/// Goes on without an entry that will not become readable by itself: a directory, a link, a file of
/// another user or of another program. It must not hide all the others.
fn pass_over(odd: &mut Vec<PathBuf>, path: PathBuf, problem: Problem) -> Result<(), Problem> {
    if problem.outcome() != Outcome::Rejected {
        return Err(problem);
    }
    odd.push(path);
    Ok(())
}

/// Removes a file if its lock is free. A process that has opened it finds, once it has the lock, that the
/// file is not at its path any more. Needs the turn, or the file removed might be another one.
fn remove_free(lock_file: &LockFile) -> Result<bool, Problem> {
    let taken = lock_file.try_lock()? == TryLock::Taken;
    // What another program wrote, and what cannot be read now, stays.
    let used = lock_file.read().is_ok_and(|record| record.name().is_some());
    if !taken || !used || !lock_file.is_in_place()? {
        return Ok(false);
    }
    let removed = fs::remove_file(&lock_file.path);
    removed.map_err(|error| Problem::io(&lock_file.path, error))?;
    Ok(true)
}

fn is_old(lock_file: &LockFile, older_than: Duration) -> Result<bool, Problem> {
    let age = host_micros().saturating_sub(written(&lock_file.metadata()?));
    Ok(u128::from(age) > older_than.as_micros())
}
