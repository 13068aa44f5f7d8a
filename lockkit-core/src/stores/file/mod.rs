//! Locks in files, for the processes of one machine.
//!
//! Each lock is a file in the store's directory, locked with `flock(2)`; the kernel frees it when
//! its process ends, however it ends. `flock(1)` from a shell script on the same file excludes the
//! holders of this store and is excluded by them.
//!
//! | | |
//! |---|---|
//! | who is excluded | every process that locks the same file; on one machine only |
//! | a holder crashes | free at once: the kernel closes its files |
//! | a holder is frozen | keeps the lock for as long as the process exists; others wait |
//! | a waiter | polls; keeps out those that came later, but is in no strict order |
//! | a waiter is frozen | keeps others out for three of the longest pauses, 0.6 s by default |
//! | token | `max(last + 1, wall clock of the machine in microseconds)` |
//! | power failure | nothing is flushed to the disk: what was lost of a token, the clock makes up for |
//! | file removed or truncated by another program | the next token is still larger, by the clock; a removed file's holder notices at its next renewal |
//! | `fork` | a child without `exec` keeps the lock of its parent until both have gone; `exec` closes it |
//!
//! # Units and shapes
//! The file of `orders/42` is `orders%2f42.lock`: what is not a lowercase ASCII letter, a digit or one
//! of `-_.` is percent-encoded, so that file systems that fold case keep all names apart; a name too
//! long for a file system is cut and gets a SHA-256 of the whole. In the file stand, as text, the
//! last token, the holder that got it, its process, label and note, and the name. All users of the directory may read it; a
//! program asks [`inspect`]. After a crash the file still names its last
//! holder, also while `flock(1)` holds the lock; without a lock no holder is shown.
//!
//! A file outlives its lock, for it keeps the token; [`FileStore::purge`] removes files long unused.
//! A file with other content is refused and left as it is.
//!
//! # Gate
//! A waiter that is refused for the second time shuts a gate: it makes the file `orders%2f42.gate`, locks
//! it and writes into it since when it waits. While the gate is shut, an attempt of a ticket that came later is
//! refused, even if the lock is free; a waiter that came earlier takes the gate over. So processes that acquire and
//! release without a pause take turns, and a short wait costs no file. `try_acquire` returns `None` while a waiter
//! keeps others out. `flock(1)` does not look at gates.
//!
//! The waiter removes its gate when it gets the lock or gives up. The kernel opens the gate of a waiter that
//! crashed; [`FileStore::purge`] removes the file. A waiter writes its gate with each poll, and a gate that was not
//! written for three of the longest pauses is open. A waiter that may not make a file in the directory waits without
//! a gate.
//!
//! # flock(1)
//! `flock /var/lib/lockkit/nightly.lock ./job.sh` works beside this store. In a shell script open the
//! file with `9>>`, not `9>`, which empties it: the token would then hang on the clock alone. A lock that
//! `flock --shared` holds is refused to attempts, but [`inspect`] shows it as free. To look at a lock is to
//! share it for an instant: `flock --nonblock` may find it taken just then, so give it `--timeout 1` where
//! a program lists or watches the locks.
//!
//! # Source
//! `flock(2)` as [`std::fs::File::try_lock`] takes it. Unlike PID files, nothing is removed
//! on release, so that no process locks a file that others no longer see; a process that has locked a file
//! compares it with the one at the path, since an operator's [`break_lock`] puts a new one there. It has the same
//! owner and group, or the break is refused.
//!
//! [`break_lock`]: crate::contract::DistributedLock::break_lock
//! [`inspect`]: crate::contract::DistributedLock::inspect

mod builder;
mod gate;
mod hold;
mod lock_file;
mod names;
mod network;
mod operator;
mod problem;
mod record;
mod tickets;

#[doc(hidden)]
pub use network::network_fs;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;

pub use builder::FileStoreBuilder;

use crate::contract::{
    Attempt, BackendError, Capabilities, DistributedLock, EndsBy, Grant, HolderId, LockName,
    LockState, PollRange, Release, Renewal, Ticket, Watch,
};
use crate::store::sync::lock;
use problem::{BACKEND, Problem, during};
use tickets::Tickets;

/// Locks in the files of one directory.
///
/// # Cost
/// Every call does a few system calls on the local disk's cache, some microseconds, in the calling
/// task. A hold costs an open file: mind the limit (`ulimit -n`) before you hold thousands.
///
/// # Examples
/// ```
/// use lockkit_core::file::FileStore;
/// use lockkit_core::DistributedLock as _;
///
/// let dir = std::env::temp_dir().join(format!("lockkit-doc-{}", std::process::id()));
/// let store = FileStore::new(&dir)?;
/// assert_eq!(store.backend(), "file");
/// # std::fs::remove_dir_all(dir).unwrap();
/// # Ok::<(), lockkit_core::BackendError>(())
/// ```
#[derive(Debug)]
pub struct FileStore {
    dir: PathBuf,
    poll: PollRange,
    tickets: Mutex<Tickets>,
}

impl FileStore {
    /// The directory, as an absolute path.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file of a lock, for `flock(1)` and the like. It is made when the lock is first taken.
    #[must_use]
    pub fn path(&self, name: &LockName) -> PathBuf {
        self.dir.join(names::encode(name))
    }

    /// The entries of the directory that are named like lock files and cannot be read as such: a
    /// directory, a link, a file that this user may not read or that another program wrote.
    /// [`list`](DistributedLock::list) and [`purge`](Self::purge) pass over them.
    ///
    /// # Errors
    /// As [`list`](DistributedLock::list).
    pub async fn unreadable(&self) -> Result<Vec<PathBuf>, BackendError> {
        let (_, odd) = self.survey("").await.map_err(during("list"))?;
        Ok(odd)
    }

    /// A duplicate of the open file of a hold; `None` if this store has no such hold.
    ///
    /// The kernel keeps the lock until this is closed too, unless it is released or broken before. A
    /// process that gets it keeps a hold from ending with this one.
    #[must_use]
    pub fn open_file(&self, holder: HolderId) -> Option<std::fs::File> {
        let tickets = lock(&self.tickets);
        let hold = tickets.held.get(&holder)?;
        hold.lock_file.file.try_clone().ok()
    }

    /// Removes the files of locks that were neither taken nor released for `older_than`, and returns
    /// how many. A name's next token is larger all the same, by the clock. Gates of crashed waiters are
    /// removed, too.
    ///
    /// Not for names that `flock(1)` locks too: a program that has opened the file and not locked it
    /// yet does not notice that the file goes.
    ///
    /// # Errors
    /// - The file system's, with their outcome; files that were removed before stay removed.
    ///
    /// # Cancel safety
    /// Cancel safe: some files are removed, others are not.
    pub async fn purge(&self, older_than: Duration) -> Result<u64, BackendError> {
        let removed = self.remove_unused(older_than).await;
        removed.map_err(during("purge"))
    }
}

#[async_trait]
impl DistributedLock for FileStore {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn capabilities(&self) -> Capabilities {
        // The store keeps no lease: `ttl` is how often the client looks whether the file is still
        // its own, and the limit of a fixed lease.
        Capabilities {
            min_ttl: Duration::from_millis(50),
            max_ttl: Duration::from_secs(365 * 86_400),
            poll: self.poll,
            ends_by: EndsBy::Process,
            notes: true,
            ..Capabilities::new()
        }
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let taken = self.take(ticket).await.map_err(during("attempt"))?;
        Ok(match taken {
            Some(token) => Attempt::Granted(Grant::new(token, ticket.ttl)),
            None => Attempt::held_for(self.wait(ticket)),
        })
    }

    async fn watch(&self, _ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        Err(during("watch")(Problem::NoWatch))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let answer = |ticket: &Ticket| {
            let token = self.still_holds(ticket).map_err(during("renew"))?;
            Ok(token.map_or(Renewal::NotHeld, |_| Renewal::renewed(ticket.ttl)))
        };
        tickets.iter().map(answer).collect()
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.give_back(ticket).map_err(during("release"))
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let seen = self.look(name).await.map_err(during("inspect"))?;
        Ok(seen.map(|record| record.state(name)))
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let _turn = self.turn().await.map_err(during("break"))?;
        self.replace(name).map_err(during("break"))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let (held, _) = self.survey(prefix).await.map_err(during("list"))?;
        Ok(held)
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool, BackendError> {
        self.write_note(ticket, text).map_err(during("note"))
    }

    /// No lease ends a hold here.
    fn forget(&self, holder: HolderId) {
        let mut tickets = lock(&self.tickets);
        let forgotten = (
            tickets.held.remove(&holder),
            tickets.waiting.remove(&holder),
        );
        drop(tickets);
        drop(forgotten);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
