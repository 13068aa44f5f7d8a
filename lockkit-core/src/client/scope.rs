//! Work under a lock, from the acquire to the release.

use std::time::Duration;

use crate::client::guard::Guard;
use crate::client::lock::Lock;
use crate::contract::{Error, Result};

impl Lock {
    /// Takes the lock, runs `work` and releases the lock.
    ///
    /// `work` is dropped at its next await if the lock is lost; a loop that never awaits must call
    /// [`Guard::check`].
    ///
    /// # Errors
    /// - [`Error::Lost`] if the lock was lost before the work ended, or the store says on release
    ///   that the hold had already gone. The work may have been done, in part or in whole.
    /// - Those of [`acquire`](Self::acquire). A release without a response is no error here: the
    ///   work was done under the lock, and the release goes on in the background.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the lock is released in the background.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
    /// # let client = lockkit_core::LockClient::new(lockkit_core::memory::MemoryStore::new())?;
    /// let written = client.lock("report")?.scope(async |guard| guard.token().get()).await?;
    /// assert!(written > 0);
    ///
    /// // Work that can fail has two errors: the lock's, then its own.
    /// # async fn example(lock: lockkit_core::Lock) -> Result<(), Box<dyn std::error::Error>> {
    /// let number: u32 = lock.scope(async |_guard| "42".parse()).await??;
    /// # assert_eq!(number, 42);
    /// # Ok(()) }
    /// # example(client.lock("report")?).await.unwrap();
    /// # Ok(()) }
    /// ```
    pub async fn scope<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
        under(self.acquire().await?, work).await
    }

    /// Does what [`scope`](Self::scope) does if the lock is free; `None`, without any work, if it is not.
    ///
    /// # Errors
    /// - [`Error::Lost`] as in [`scope`](Self::scope).
    /// - Those of [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// As [`scope`](Self::scope).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
    /// # let client = lockkit_core::LockClient::new(lockkit_core::memory::MemoryStore::new())?;
    /// let done = client.lock("report")?.try_scope(async |_guard| "written").await?;
    /// assert_eq!(done, Some("written"));
    /// # Ok(()) }
    /// ```
    pub async fn try_scope<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<Option<T>> {
        match self.try_acquire().await? {
            Some(guard) => under(guard, work).await.map(Some),
            None => Ok(None),
        }
    }

    /// Does what [`scope`](Self::scope) does, but waits for the lock not longer than `limit`. The work
    /// itself has no limit.
    ///
    /// # Errors
    /// - [`Error::Lost`] as in [`scope`](Self::scope).
    /// - Those of [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Cancel safety
    /// As [`scope`](Self::scope).
    pub async fn scope_timeout<T>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T> {
        under(self.acquire_timeout(limit).await?, work).await
    }
}

/// Works under `guard`, and releases.
async fn under<T>(guard: Guard, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T> {
    let value = guard.protect(work(&guard)).await?;
    worked(value, guard.release().await)
}

/// The result of work that was done under a lock: a release without an answer is no error of the work.
pub(crate) fn worked<T>(value: T, released: Result<()>) -> Result<T> {
    match released {
        Err(lost @ Error::Lost { .. }) => Err(lost),
        _ => Ok(value),
    }
}
