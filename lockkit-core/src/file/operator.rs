//! What operators do: look, list, break, purge.

use std::fs::{self, File, ReadDir, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use super::FileStore;
use super::hold::{host_micros, read};
use super::names::{self, Decoded};
use super::place::{Place, Seizure};
use super::problem::Problem;
use super::record::{self, Content};
use crate::backend::LockState;
use crate::name::LockName;
use crate::token::FencingToken;

/// The new file of a lock that is being broken, before it is in place. No lock has this name.
const FRESH: &str = ".broken";
/// The holder shown for a lock that another program took, such as `flock(1)`.
const OTHER_PROGRAM: &str = "flock";
/// How often a look is repeated that came between locking and writing.
const LOOKS: u32 = 3;
/// How often a breaker asks whether another one has done.
const TURNS: u32 = 400;
/// After so many files other tasks get their turn.
const BATCH: usize = 64;

/// What an operator sees of a lock that is held.
pub(super) fn state(name: &LockName, content: &Content) -> LockState {
    let holder = content.entry().and_then(|entry| entry.holder);
    let holder = holder.map_or_else(
        || OTHER_PROGRAM.to_owned(),
        |(holder, _)| holder.to_string(),
    );
    LockState::new(name.clone())
        .with_holder(holder)
        .with_token(FencingToken::new(content.token()))
}

impl FileStore {
    /// The content of the lock's file if somebody holds the lock.
    pub(super) async fn look(&self, name: &LockName) -> Result<Option<Content>, Problem> {
        let path = self.path(name);
        let mut seen = None;
        for _ in 0..LOOKS {
            let Some(place) = Place::look(&path)? else {
                return Ok(None);
            };
            if !place.is_held(&path)? {
                return Ok(None);
            }
            let content = read(&place, &path, name.as_str())?;
            let signed = content.entry().is_some_and(|entry| entry.holder.is_some());
            seen = Some(content);
            if signed {
                break;
            }
            // Locked, and nobody has signed: in a moment somebody will, or it is another program.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(seen)
    }

    /// Waits until no other process breaks a lock or removes a file in this directory; the turn ends
    /// when the answer is dropped.
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

    /// Puts a new file with a larger token in the place of one that somebody has locked. Needs the
    /// turn: two breakers would otherwise put two files there.
    pub(super) fn replace(&self, name: &LockName) -> Result<Option<LockState>, Problem> {
        let path = self.path(name);
        let at_path = |error| Problem::io(&path, error);
        let Some(old) = Place::open_existing(&path)? else {
            return Ok(None);
        };
        if !old.is_held(&path)? {
            return Ok(None);
        }
        let before = read(&old, &path, name.as_str())?;
        let fresh = self.fresh_like(&old, &path)?;
        // Locked until its token is settled: nobody can take it in between.
        fresh.seize(&path)?;
        let token = self.next_token(&before, &path)?.get();
        record::write(&fresh.file, &Content::Fresh, name.as_str(), token, None).map_err(at_path)?;
        fs::rename(self.dir.join(FRESH), &path).map_err(at_path)?;
        // Since we read it, others may have held the old file in turn. Each of them wrote its token
        // before it found the file still in place, so that all their tokens are in it by now.
        let last = read(&old, &path, name.as_str())?.token();
        if last >= token {
            let content = record::read(&fresh.file).map_err(at_path)?;
            record::write(&fresh.file, &content, name.as_str(), last, None).map_err(at_path)?;
        }
        fresh.unlock(&path)?;
        Ok(Some(state(name, &before)))
    }

    /// Makes an empty file outside of all names, with the permissions of `old`.
    fn fresh_like(&self, old: &Place, path: &Path) -> Result<Place, Problem> {
        let fresh = self.dir.join(FRESH);
        // A breaker that crashed has left it.
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Problem::io(&fresh, error));
            }
            _ => {}
        }
        let place = Place::create(&fresh)?.ok_or_else(|| Problem::Breaking(self.dir.clone()))?;
        let mode = old.file.metadata().map(|metadata| metadata.permissions());
        mode.and_then(|mode| place.file.set_permissions(mode))
            .map_err(|error| Problem::io(path, error))?;
        Ok(place)
    }

    /// The locks that are held and begin with `prefix`, by name.
    pub(super) async fn list_held(&self, prefix: &str) -> Result<Vec<LockState>, Problem> {
        let mut states = Vec::new();
        let mut files = self.files()?;
        while let Some(name) = self.next_lock(&mut files).await? {
            if !name.as_str().starts_with(prefix) {
                continue;
            }
            if let Some(content) = self.look(&name).await? {
                states.push(state(&name, &content));
            }
        }
        states.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(states)
    }

    /// Removes the files of locks that are free and were not written for `older_than`.
    pub(super) async fn remove_unused(&self, older_than: Duration) -> Result<u64, Problem> {
        let mut removed = 0;
        let mut files = self.files()?;
        while let Some(name) = self.next_lock(&mut files).await? {
            let path = self.path(&name);
            if is_old(&path, older_than)? {
                let turn = self.turn().await?;
                removed += u64::from(remove_free(&path)?);
                drop(turn);
            }
        }
        Ok(removed)
    }

    fn files(&self) -> Result<Files, Problem> {
        let entries = fs::read_dir(&self.dir).map_err(|error| Problem::io(&self.dir, error))?;
        Ok(Files { entries, count: 0 })
    }

    /// The next file of the directory that is a lock of ours.
    async fn next_lock(&self, files: &mut Files) -> Result<Option<LockName>, Problem> {
        for entry in files.entries.by_ref() {
            let entry = entry.map_err(|error| Problem::io(&self.dir, error))?;
            files.count += 1;
            if files.count.is_multiple_of(BATCH) {
                tokio::task::yield_now().await;
            }
            let file_name = entry.file_name();
            let name = match file_name.to_str().and_then(names::decode) {
                Some(Decoded::Name(name)) => Some(name),
                Some(Decoded::Cut) => name_inside(&entry.path())?,
                None => None,
            };
            // A file that claims a name which belongs elsewhere is not that name's lock.
            let name = name.filter(|name| file_name == *names::encode(name));
            if let Some(name) = name.and_then(|name| LockName::new(name).ok()) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

/// A walk through the directory.
#[derive(Debug)]
struct Files {
    entries: ReadDir,
    count: usize,
}

/// The name in a lock file; `None` if it has none or has just gone.
fn name_inside(path: &Path) -> Result<Option<String>, Problem> {
    let Some(place) = Place::look(path)? else {
        return Ok(None);
    };
    let content = record::read(&place.file).map_err(|error| Problem::io(path, error))?;
    Ok(content.name().map(str::to_owned))
}

/// Removes a file if its lock is free. Whoever has opened it finds, once it has the lock, that the
/// file is not at its path any more. Needs the turn, or the file removed might be another one.
fn remove_free(path: &Path) -> Result<bool, Problem> {
    let Some(place) = Place::open_existing(path)? else {
        return Ok(false);
    };
    if place.seize(path)? != Seizure::Taken || !place.is_at(path)? {
        return Ok(false);
    }
    let content = record::read(&place.file).map_err(|error| Problem::io(path, error))?;
    if !matches!(content, Content::Ours(_)) {
        return Ok(false);
    }
    fs::remove_file(path).map_err(|error| Problem::io(path, error))?;
    Ok(true)
}

fn is_old(path: &Path, older_than: Duration) -> Result<bool, Problem> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            let written = u128::try_from(metadata.mtime()).unwrap_or(0) * 1_000_000;
            Ok(u128::from(host_micros()).saturating_sub(written) > older_than.as_micros())
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Problem::io(path, error)),
    }
}
