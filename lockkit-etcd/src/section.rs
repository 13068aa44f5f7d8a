//! A read-modify-write under a lock, in two round trips.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{GetOptions, GetResponse, Txn, TxnOp, TxnResponse};
use lockkit_core::contract::Work;
use lockkit_core::store::section::{FencedError, committed, store_of};
use lockkit_core::{Error, Guard, Lock};

use crate::backend::EtcdStore;
use crate::error::BACKEND;
use crate::fenced::Fenced;
use crate::queue::{Reads, Writes};

/// A read-modify-write under an exclusive lock: the grant reads, and the commit writes and releases.
///
/// What is read is what the section before has written. The commit is one transaction: it writes only while
/// the lock is held, whatever the clocks say, and everything or nothing.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_etcd::Section;
/// use lockkit_etcd::etcd_client::{Txn, TxnOp};
///
/// # async fn example(client: LockClient) -> Result<(), Box<dyn std::error::Error>> {
/// let lock = client.lock("cart:7")?;
/// let section = Section::of(&lock).read("cart/7/total");
/// let (entered, found) = section.enter().await?;
/// let total = found[0].kvs().first().map_or("0", |kv| kv.value_str().unwrap_or("0"));
/// let total = total.parse::<u64>()? + 5;
/// let put = TxnOp::put("cart/7/total", total.to_string(), None);
/// entered.commit(Txn::new().and_then([put])).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is done before `enter`"]
pub struct Section {
    lock: Lock,
    reads: Arc<Reads>,
}

impl Section {
    /// A section of this lock, which reads nothing yet. The store of the lock must be an [`EtcdStore`].
    pub fn of(lock: &Lock) -> Self {
        Self {
            lock: lock.clone(),
            reads: Arc::new(Reads::new(Vec::new())),
        }
    }

    /// Reads this key as well.
    pub fn read(self, key: impl Into<Vec<u8>>) -> Self {
        self.get(TxnOp::get(key, None))
    }

    /// Reads all keys with this prefix as well.
    pub fn read_prefix(self, prefix: impl Into<Vec<u8>>) -> Self {
        let options = GetOptions::new().with_prefix();
        self.get(TxnOp::get(prefix, Some(options)))
    }

    fn get(mut self, get: TxnOp) -> Self {
        let gets = self.reads.request.iter().cloned().chain([get]);
        self.reads = Arc::new(Reads::new(gets.collect()));
        self
    }

    /// Waits for the lock, for as long as it takes; returns one result for each
    /// [`read`](Self::read) and [`read_prefix`](Self::read_prefix).
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the store is not an [`EtcdStore`].
    /// - [`Error::InvalidOption`] if the lock is not exclusive, or is kept for a time by
    ///   [`with_min_hold`](Lock::with_min_hold).
    /// - [`Error::Backend`] if the server refuses to read: the user may not, or there are more keys to read
    ///   than the server allows operations in a transaction, 128 by default. The lock is released.
    /// - [`Error::Lost`] if the lock was lost before the keys could be read.
    /// - Those of [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Cost
    /// One round trip when the lock is free. One more, to read, after a wait or if the owner holds the lock.
    pub async fn enter(&self) -> Result<(Entered, Vec<GetResponse>), Error> {
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
    pub async fn enter_timeout(
        &self,
        limit: Duration,
    ) -> Result<(Entered, Vec<GetResponse>), Error> {
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
    pub async fn try_enter(&self) -> Result<Option<(Entered, Vec<GetResponse>)>, Error> {
        match self.lock()?.try_acquire().await? {
            Some(guard) => self.entered(guard).await.map(Some),
            None => Ok(None),
        }
    }

    /// The store.
    fn store(&self) -> Result<&EtcdStore, Error> {
        store_of(&self.lock, "etcd")
    }

    /// The lock whose grants read.
    fn lock(&self) -> Result<Lock, Error> {
        self.store()?;
        let reads = !self.reads.request.is_empty();
        let reads = reads.then(|| Work::new(Arc::clone(&self.reads)));
        self.lock.clone().with_work(reads)
    }

    async fn entered(&self, guard: Guard) -> Result<(Entered, Vec<GetResponse>), Error> {
        let found = match self.reads.take_of(guard.token()) {
            Some(found) => Ok(found),
            None => self.read_under(&guard).await,
        };
        match found {
            Ok(found) => Ok((Entered { guard }, found)),
            Err(error) => {
                // Whatever becomes of it, the error of the read is the one to tell.
                let _ = guard.release().await;
                Err(error)
            }
        }
    }

    /// Reads under a hold that came without a read: by an event, or because the owner has it.
    async fn read_under(&self, guard: &Guard) -> Result<Vec<GetResponse>, Error> {
        if self.reads.request.is_empty() {
            return Ok(Vec::new());
        }
        let ticket = guard.ticket().clone();
        let fenced = Fenced::new(self.store()?, ticket, guard.token());
        let found = fenced.read(&self.reads.request).await;
        found.map_err(|error| error.on_entry(guard))
    }
}

/// The guard of a section. Dropped, it releases the lock and writes nothing.
#[derive(Debug)]
#[must_use = "a section that is not kept releases its lock at once and writes nothing"]
pub struct Entered {
    guard: Guard,
}

impl Entered {
    /// Executes a transaction and releases the lock in one step, if the lock is still held; returns the
    /// result of the transaction. A waiter that gets the lock reads what was written.
    ///
    /// The transaction may have conditions of its own. The lock is released whether they hold or not.
    ///
    /// # Errors
    /// In each case the lock is released, and the transaction is not executed twice.
    /// - [`FencedError::Fenced`] if the hold has ended; nothing was done.
    /// - [`FencedError::Backend`] with [`Outcome::Indeterminate`](lockkit_core::Outcome::Indeterminate) if it is
    ///   unknown whether the transaction was executed. A request that is still on its way is executed if it
    ///   comes before the release, which goes on in the background.
    /// - [`FencedError::Backend`] with another outcome if nothing was done: the server refused the transaction
    ///   or cannot be reached, or the hold has other guards.
    ///
    /// # Cancel safety
    /// After it is dropped, the transaction may still be executed. The lock is released in the background.
    ///
    /// # Cost
    /// One round trip.
    pub async fn commit(self, work: Txn) -> Result<TxnResponse, FencedError> {
        let writes = Arc::new(Writes::new(work));
        let ended = self.guard.release_with(Work::new(Arc::clone(&writes)));
        let ended = ended.await;
        committed(writes.take(), ended, BACKEND)
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
