//! What operators do: look, list, break, purge.

use std::fs::{self, File, ReadDir, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::FileStore;
use super::hold::{host_micros, next_token, read};
use super::lock_file::{LockFile, TryLock};
use super::names::{self, Decoded};
use super::problem::Problem;
use super::record::{self, Content};
use crate::contract::LockState;
use crate::contract::error::Outcome;
use crate::contract::name::LockName;

/// The new file of a lock that is being broken, before it is in place. No lock has this name.
const FRESH: &str = ".broken";
/// How often a look is repeated that came between locking and writing.
const LOOKS: u32 = 3;
/// How often a breaker asks whether another one has done.
const TURNS: u32 = 400;
/// After this number of files other tasks get their turn.
const BATCH: usize = 64;

impl FileStore {
    /// The content of the lock's file if the lock is held.
    pub(super) async fn look(&self, name: &LockName) -> Result<Option<Content>, Problem> {
        let path = self.path(name);
        let mut seen = None;
        for _ in 0..LOOKS {
            let Some(lock_file) = LockFile::look(&path)? else {
                return Ok(None);
            };
            if !lock_file.is_held(&path)? {
                return Ok(None);
            }
            let content = read(&lock_file, &path, name.as_str())?;
            let signed = content.entry().is_some_and(|entry| entry.holder.is_some());
            seen = Some(content);
            if signed {
                break;
            }
            // Locked, and without a holder: one will be written in a moment, or it is another program.
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

    /// Puts a new file with a larger token in the place of one that is locked. Needs the
    /// turn: two breakers would otherwise put two files there.
    pub(super) fn replace(&self, name: &LockName) -> Result<Option<LockState>, Problem> {
        let path = self.path(name);
        let at_path = |error| Problem::io(&path, error);
        let Some(old) = LockFile::open_existing(&path)? else {
            return Ok(None);
        };
        if !old.is_held(&path)? {
            return Ok(None);
        }
        let before = read(&old, &path, name.as_str())?;
        let fresh = self.fresh_like(&old, &path)?;
        // Locked until its token is settled: no process can take it in between.
        fresh.try_lock(&path)?;
        let token = next_token(&before, &path)?.get();
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
        Ok(Some(before.state(name)))
    }

    /// Makes an empty file outside of all names, with the owner, group and permissions of `old`: a user who
    /// could lock the one can lock the other.
    fn fresh_like(&self, old: &LockFile, path: &Path) -> Result<LockFile, Problem> {
        let fresh = self.dir.join(FRESH);
        // A breaker that crashed has left it.
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Problem::io(&fresh, error));
            }
            _ => {}
        }
        let lock_file =
            LockFile::create(&fresh)?.ok_or_else(|| Problem::Breaking(self.dir.clone()))?;
        let at_path = |error| Problem::io(path, error);
        let wanted = old.file.metadata().map_err(at_path)?;
        let made = lock_file.file.metadata().map_err(at_path)?;
        let (uid, gid) = (wanted.uid(), wanted.gid());
        if (made.uid(), made.gid()) != (uid, gid)
            && let Err(source) = fchown(&lock_file.file, Some(uid), Some(gid))
        {
            let _ = fs::remove_file(&fresh);
            let path = path.to_owned();
            return Err(Problem::Owner {
                path,
                uid,
                gid,
                source,
            });
        }
        let mode = wanted.permissions();
        lock_file.file.set_permissions(mode).map_err(at_path)?;
        Ok(lock_file)
    }

    /// The locks that are held and begin with `prefix`, by name; and the entries that are named like
    /// lock files and cannot be read as such.
    pub(super) async fn survey(
        &self,
        prefix: &str,
    ) -> Result<(Vec<LockState>, Vec<PathBuf>), Problem> {
        let mut states = Vec::new();
        let mut files = self.files()?;
        while let Some(name) = self.next_lock(&mut files).await? {
            if !name.as_str().starts_with(prefix) {
                continue;
            }
            match self.look(&name).await {
                Ok(Some(content)) => states.push(content.state(&name)),
                Ok(None) => {}
                Err(problem) => files.pass_over(self.path(&name), problem)?,
            }
        }
        states.sort_by(|one, other| one.name.cmp(&other.name));
        files.odd.sort();
        Ok((states, files.odd))
    }

    /// Removes the files of locks that are free and were not written for `older_than`.
    pub(super) async fn remove_unused(&self, older_than: Duration) -> Result<u64, Problem> {
        let mut removed = 0;
        let mut files = self.files()?;
        while let Some(name) = self.next_lock(&mut files).await? {
            let path = self.path(&name);
            if is_old(&path, older_than)? {
                let turn = self.turn().await?;
                match LockFile::open_existing(&path) {
                    Ok(Some(lock_file)) => removed += u64::from(remove_free(&lock_file, &path)?),
                    Ok(None) => {}
                    Err(problem) => files.pass_over(path, problem)?,
                }
                drop(turn);
            }
        }
        Ok(removed)
    }

    fn files(&self) -> Result<Files, Problem> {
        let entries = fs::read_dir(&self.dir).map_err(|error| Problem::io(&self.dir, error))?;
        Ok(Files {
            entries,
            count: 0,
            odd: Vec::new(),
        })
    }

    /// The next file of the directory that is a lock of ours.
    async fn next_lock(&self, files: &mut Files) -> Result<Option<LockName>, Problem> {
        while let Some(entry) = files.entries.next() {
            let entry = entry.map_err(|error| Problem::io(&self.dir, error))?;
            files.count += 1;
            if files.count.is_multiple_of(BATCH) {
                tokio::task::yield_now().await;
            }
            let file_name = entry.file_name();
            let name = match file_name.to_str().and_then(names::decode) {
                Some(Decoded::Name(name)) => Some(name),
                Some(Decoded::Cut) => match name_inside(&entry.path()) {
                    Ok(name) => name,
                    Err(problem) => {
                        files.pass_over(entry.path(), problem)?;
                        continue;
                    }
                },
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
    /// What cannot be read as a lock file.
    odd: Vec<PathBuf>,
}

impl Files {
    /// Goes on without an entry that will not become readable by itself: a directory, a link, a file of
    /// another user or of another program. It must not hide all the others.
    fn pass_over(&mut self, path: PathBuf, problem: Problem) -> Result<(), Problem> {
        if problem.outcome() != Outcome::Rejected {
            return Err(problem);
        }
        self.odd.push(path);
        Ok(())
    }
}

/// The name in a lock file; `None` if it has none or has just gone.
fn name_inside(path: &Path) -> Result<Option<String>, Problem> {
    let Some(lock_file) = LockFile::look(path)? else {
        return Ok(None);
    };
    let content = record::read(&lock_file.file).map_err(|error| Problem::io(path, error))?;
    Ok(content.name().map(str::to_owned))
}

/// Removes a file if its lock is free. A process that has opened it finds, once it has the lock, that the
/// file is not at its path any more. Needs the turn, or the file removed might be another one.
fn remove_free(lock_file: &LockFile, path: &Path) -> Result<bool, Problem> {
    if lock_file.try_lock(path)? != TryLock::Taken || !lock_file.is_at(path)? {
        return Ok(false);
    }
    let content = record::read(&lock_file.file).map_err(|error| Problem::io(path, error))?;
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;
    use crate::contract::holder::{ClientId, HolderId};
    use crate::contract::{DistributedLock as _, Ticket};
    use crate::stores::file::scratch::Scratch;

    /// A user who is not the one that runs the tests.
    const NOBODY: u32 = 65_534;

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    async fn hold(store: &FileStore, text: &str) -> Ticket {
        let holder = HolderId::new(ClientId::random(), 1);
        let ticket = Ticket::new(name(text), holder, Duration::from_secs(30));
        assert!(store.take(&ticket).await.unwrap().is_some());
        ticket
    }

    /// Tests nothing where the tests do not run as root: no other user can give a file away.
    #[tokio::test]
    async fn a_broken_lock_keeps_its_owner_group_and_mode() {
        let scratch = Scratch::new();
        let store = scratch.store();
        let path = store.path(&name("nightly"));
        hold(&store, "nightly").await;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        if chown(&path, Some(NOBODY), Some(NOBODY)).is_err() {
            return;
        }
        assert!(store.break_lock(&name("nightly")).await.unwrap().is_some());
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (NOBODY, NOBODY));
        assert_eq!(metadata.mode() & 0o777, 0o640);
    }

    /// As above; the thread that breaks is not root any more.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_break_that_would_change_the_owner_is_refused() {
        let scratch = Scratch::new();
        let store = scratch.store();
        let path = store.path(&name("nightly"));
        let ticket = hold(&store, "nightly").await;
        for path in [store.dir(), &*path] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let broken = std::thread::scope(|scope| {
            let breaker = scope.spawn(|| {
                let nobody = rustix::process::Uid::from_raw(NOBODY);
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).ok()?;
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build().unwrap();
                Some(runtime.block_on(store.break_lock(&name("nightly"))))
            });
            breaker.join().unwrap()
        });
        let Some(broken) = broken else { return };
        let error = broken.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Rejected);
        let said = crate::Error::from(error).to_string();
        assert!(said.contains("user 0"), "{said}");
        assert!(store.still_holds(&ticket).unwrap().is_some());
        assert!(!store.dir().join(FRESH).exists());
    }

    #[tokio::test]
    async fn odd_entries_hide_no_lock() {
        let scratch = Scratch::new();
        let store = scratch.store();
        let (kept, gone) = (hold(&store, "kept").await, hold(&store, "gone").await);
        store.give_back(&gone).unwrap();
        fs::create_dir(scratch.path("directory.lock")).unwrap();
        std::os::unix::fs::symlink("elsewhere", scratch.path("link.lock")).unwrap();
        let odd = ["directory.lock", "link.lock"].map(|name| scratch.path(name));
        let listed = store.list("").await.unwrap();
        let names: Vec<_> = listed.iter().map(|state| state.name.as_str()).collect();
        assert_eq!(names, ["kept"]);
        assert_eq!(store.unreadable().await.unwrap(), odd);
        assert_eq!(store.purge(Duration::ZERO).await.unwrap(), 1);
        store.give_back(&kept).unwrap();
    }
}
