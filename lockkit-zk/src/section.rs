//! Writes under a lock that end with its release, in one transaction.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::contract::Work;
use lockkit_core::store::section::{FencedError, committed, store_of};
use lockkit_core::{Error, Guard, Lock};

use crate::backend::ZkStore;
use crate::error::BACKEND;
use crate::fenced::{Write, Writes, Written};

/// A read-modify-write under an exclusive lock, whose commit writes and releases in one transaction.
///
/// The commit writes only while the lock is held, whatever the clocks say, and everything or nothing. Reads
/// are the caller's: a client that sends a `sync` once it has the lock reads what the section before has
/// written.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_zk::{Section, Write};
///
/// # async fn example(client: LockClient) -> Result<(), Box<dyn std::error::Error>> {
/// let lock = client.lock("cart:7")?;
/// let entered = Section::of(&lock).enter().await?;
/// entered.commit(&[Write::set("/cart/7/state", "paid")]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is done before `enter`"]
pub struct Section {
    lock: Lock,
}

impl Section {
    /// A section of this lock. Its store must be a [`ZkStore`].
    pub fn of(lock: &Lock) -> Self {
        Self { lock: lock.clone() }
    }

    /// Waits for the lock, for as long as it takes.
    ///
    /// # Errors
    /// - [`Error::Unsupported`] if the store is not a [`ZkStore`].
    /// - [`Error::InvalidOption`] if the lock is not exclusive, or is kept for a time by
    ///   [`with_min_hold`](Lock::with_min_hold).
    /// - Those of [`Lock::acquire`].
    ///
    /// # Cancel safety
    /// As [`Lock::acquire`].
    ///
    /// # Cost
    /// As [`Lock::acquire`].
    pub async fn enter(&self) -> Result<Entered, Error> {
        let guard = self.lock()?.acquire().await?;
        Ok(Entered { guard })
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
    /// As [`Lock::acquire`].
    pub async fn enter_timeout(&self, limit: Duration) -> Result<Entered, Error> {
        let guard = self.lock()?.acquire_timeout(limit).await?;
        Ok(Entered { guard })
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
    /// As [`Lock::try_acquire`].
    pub async fn try_enter(&self) -> Result<Option<Entered>, Error> {
        let guard = self.lock()?.try_acquire().await?;
        Ok(guard.map(|guard| Entered { guard }))
    }

    fn lock(&self) -> Result<Lock, Error> {
        store_of::<ZkStore>(&self.lock, "ZooKeeper")?;
        self.lock.clone().with_work(None)
    }
}

/// The guard of a section. Dropped, it releases the lock and writes nothing.
#[derive(Debug)]
#[must_use = "a section that is not kept releases its lock at once and writes nothing"]
pub struct Entered {
    guard: Guard,
}

impl Entered {
    /// Writes and releases the lock in one transaction, if the lock is still held; returns one result for each
    /// write. A waiter that gets the lock reads what was written.
    ///
    /// # Errors
    /// In each case the lock is released, and the writes are not carried out twice.
    /// - [`FencedError::Fenced`] if the hold has ended; nothing was written.
    /// - [`FencedError::Backend`] with [`Outcome::Indeterminate`](lockkit_core::Outcome::Indeterminate) if it is unknown whether they were carried out. A
    ///   request that is still on its way writes if it comes before the release, which goes on in the background.
    /// - [`FencedError::Backend`] with another outcome if nothing was written: the ensemble refused a write or
    ///   cannot be reached, or the hold has other guards.
    ///
    /// # Cancel safety
    /// After it is dropped, all may still be written, or nothing. The lock is released in the background.
    ///
    /// # Cost
    /// One round trip.
    pub async fn commit(self, writes: &[Write]) -> Result<Vec<Written>, FencedError> {
        let work = Arc::new(Writes::new(writes.to_vec()));
        let ended = self.guard.release_with(Work::new(Arc::clone(&work)));
        let ended = ended.await;
        committed(work.take(), ended, BACKEND)
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
