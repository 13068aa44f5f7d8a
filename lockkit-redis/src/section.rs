//! A read-modify-write under a lock, in two round trips.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::contract::{Ticket, Work};
use lockkit_core::store::section::{FencedError, committed, store_of};
use lockkit_core::{ClientId, Error, Guard, HolderId, Lock};

use crate::backend::RedisStore;
use crate::error::BACKEND;
use crate::fenced::{Fenced, Script};
use crate::reply::Reply;
use crate::work::{Command, Commit, Reads, Writes};

/// A read-modify-write under an exclusive lock: the grant reads, and the commit writes and releases.
///
/// What is read is what the section before has written. The commit writes everything or nothing, unless a
/// command fails: it writes only while the lock is held with its token, whatever the clocks say.
///
/// In a cluster, all keys must be in the slot of the lock: give them its `{tag}`.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_redis::{Command, Section};
///
/// # async fn example(client: LockClient) -> Result<(), Box<dyn std::error::Error>> {
/// let lock = client.lock("lock:{cart:7}")?;
/// let section = Section::of(&lock).read(Command::new("GET").arg("{cart:7}:total"));
/// let (entered, replies) = section.enter().await?;
/// let total = replies[0].as_int().unwrap_or(0) + 5;
/// let total = Command::new("SET").arg("{cart:7}:total").arg(total.to_string());
/// entered.commit(&[total]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is done before `enter` or `apply`"]
pub struct Section {
    lock: Lock,
    reads: Arc<Reads>,
}

impl Section {
    /// A section of this lock, which reads nothing yet. The store of the lock must be a [`RedisStore`].
    pub fn of(lock: &Lock) -> Self {
        Self {
            lock: lock.clone(),
            reads: Arc::new(Reads::new(Vec::new())),
        }
    }

    /// Reads this as well. A command that writes may be carried out several times.
    pub fn read(mut self, command: Command) -> Self {
        let commands = self.reads.request.iter().cloned().chain([command]);
        self.reads = Arc::new(Reads::new(commands.collect()));
        self
    }

    /// Waits for the lock, for as long as it takes; returns one reply for each command that reads.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the store is not a [`RedisStore`].
    /// - [`Error::InvalidOption`] if the lock is not exclusive, or is kept for a time by
    ///   [`with_min_hold`](Lock::with_min_hold).
    /// - [`Error::Backend`] if a command that reads fails. The lock is released.
    /// - [`Error::Lost`] if the lock was lost before the commands could read.
    /// - Those of [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Cost
    /// One round trip when the lock is free. After a wait for sections that read the same, and at most 64 kB, nothing
    /// more: the commit before has read. One more, to read, after another wait or if the owner holds the lock.
    pub async fn enter(&self) -> Result<(Entered, Vec<Reply>), Error> {
        let guard = self.lock()?.acquire().await?;
        self.entered(guard).await
    }

    /// As [`enter`](Self::enter), but waits not longer than `limit`.
    ///
    /// # Errors
    /// - [`Error::Timeout`] as [`Lock::acquire_timeout`].
    /// - Those of [`enter`](Self::enter).
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Cost
    /// As [`enter`](Self::enter).
    pub async fn enter_timeout(&self, limit: Duration) -> Result<(Entered, Vec<Reply>), Error> {
        let guard = self.lock()?.acquire_timeout(limit).await?;
        self.entered(guard).await
    }

    /// As [`enter`](Self::enter), but `None` if the lock is held or waited for.
    ///
    /// # Errors
    /// - Those of [`enter`](Self::enter) and [`Lock::try_acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Cost
    /// One round trip.
    pub async fn try_enter(&self) -> Result<Option<(Entered, Vec<Reply>)>, Error> {
        match self.lock()?.try_acquire().await? {
            Some(guard) => self.entered(guard).await.map(Some),
            None => Ok(None),
        }
    }

    /// Runs a script under the lock, for work that needs no reply from outside. Reads nothing else.
    ///
    /// If the lock is free and has no waiters, it is taken, the script is run, and it is released, all in one step and
    /// without a lease. Otherwise this waits for the lock, runs the script as [`Fenced::script`] does, and releases.
    ///
    /// # Errors
    /// In each case the lock is released, and the script is not run twice.
    /// - [`Error::Backend`] with [`Outcome::Indeterminate`](lockkit_core::Outcome::Indeterminate) if it is unknown what
    ///   the script has written: it failed, there was no reply, or too few replicas have it
    ///   ([`acks`](crate::RedisStoreBuilder::acks)).
    /// - [`Error::Lost`] if the lock was lost before the script could run; nothing was written.
    /// - Those of [`enter`](Self::enter).
    ///
    /// # Cancel safety
    /// After it is dropped, the script may still be run. The lock is released in the background.
    ///
    /// # Cost
    /// One round trip when the lock is free. Else one more than a wait for the lock, to run the script, and a release.
    pub async fn apply(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<Reply, Error> {
        let store = self.store()?;
        let lock = self.lock.clone().with_work(None)?;
        let holder = HolderId::new(ClientId::random(), 0);
        let ticket = Ticket::new(lock.stored_name().clone(), holder, Duration::ZERO);
        if let Some(reply) = script.apply(store, &ticket, keys, arguments).await? {
            return Ok(reply);
        }
        let guard = lock.acquire().await?;
        let fenced = Fenced::new(store, guard.ticket().clone(), guard.token());
        let done = fenced.script(script, keys, arguments).await;
        let done = done.map_err(|error| error.on_entry(&guard));
        // Whatever becomes of it, what became of the script is to tell.
        let _ = guard.release().await;
        done
    }

    /// The store.
    fn store(&self) -> Result<&RedisStore, Error> {
        store_of(&self.lock, "Redis")
    }

    /// The lock whose grants read.
    fn lock(&self) -> Result<Lock, Error> {
        self.store()?;
        let reads = Work::new(Arc::clone(&self.reads));
        self.lock.clone().with_work(reads)
    }

    async fn entered(&self, guard: Guard) -> Result<(Entered, Vec<Reply>), Error> {
        let replies = match self.reads.take_of(guard.token()) {
            Some(replies) => replies.map_err(Error::from),
            None => self.read_under(&guard).await,
        };
        match replies {
            Ok(replies) => {
                let reads = Arc::clone(&self.reads);
                Ok((Entered { guard, reads }, replies))
            }
            Err(error) => {
                // Whatever becomes of it, the error of the command is the one to tell.
                let _ = guard.release().await;
                Err(error)
            }
        }
    }

    /// Reads under a hold that came without replies: by a release, or because the owner has it.
    async fn read_under(&self, guard: &Guard) -> Result<Vec<Reply>, Error> {
        if self.reads.request.is_empty() {
            return Ok(Vec::new());
        }
        let ticket = guard.ticket().clone();
        let fenced = Fenced::new(self.store()?, ticket, guard.token());
        let replies = fenced.commands(&self.reads.request).await;
        replies.map_err(|error| error.on_entry(guard))
    }
}

/// The guard of a section. Dropped, it releases the lock and writes nothing.
#[derive(Debug)]
#[must_use = "a section that is not kept releases its lock at once and writes nothing"]
pub struct Entered {
    guard: Guard,
    reads: Arc<Reads>,
}

impl Entered {
    /// Writes and releases the lock in one step, if the lock is still held; returns one reply for each
    /// command. A waiter that gets the lock reads what was written.
    ///
    /// After a command that fails, the others are not run, and the writes before it stay.
    ///
    /// # Errors
    /// In each case the lock is released, and no command is run twice.
    /// - [`FencedError::Fenced`] if the hold has ended; nothing was written.
    /// - [`FencedError::Backend`] with [`Outcome::Indeterminate`](lockkit_core::Outcome::Indeterminate) if it is
    ///   unknown what was written: a command failed, there was no reply, or too few replicas have it
    ///   ([`acks`](crate::RedisStoreBuilder::acks)). A request that is still on its way writes if it comes before the
    ///   release, which goes on in the background.
    /// - [`FencedError::Backend`] with another outcome if nothing was written: the server refused the request or
    ///   cannot be reached, or the hold has other guards.
    ///
    /// # Cancel safety
    /// After it is dropped, all may still be written, or nothing. The lock is released in the background.
    ///
    /// # Cost
    /// One round trip.
    pub async fn commit(self, commands: &[Command]) -> Result<Vec<Reply>, FencedError> {
        let writes = Arc::new(Writes::new(Commit {
            token: self.guard.token(),
            reads: self.reads,
            commands: commands.to_vec(),
        }));
        let ended = self.guard.release_with(Work::new(Arc::clone(&writes)));
        let ended = ended.await;
        Ok(committed(writes.take(), ended, BACKEND)??)
    }

    /// The guard alone, to release or detach the lock without a write.
    pub fn into_guard(self) -> Guard {
        self.guard
    }
}

impl Deref for Entered {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}
