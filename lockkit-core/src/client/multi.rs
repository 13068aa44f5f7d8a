//! Locks of several names, taken whole or not at all.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::client::guard::{Guard, protect};
use crate::client::lock::Lock;
use crate::client::scope::worked;
use crate::contract::{Error, LockName, LossReason, Result};

/// Locks of several names that are held together or not at all.
///
/// [`acquire`](Self::acquire) tries all of them at once. If some are busy, it gives back those after the
/// first busy one, and waits for one name after the other, in the order of their bytes. So nobody waits
/// for a name while holding a later one, and two callers with the same names in another order never wait
/// for each other.
///
/// All locks belong to one client. Locks in two stores share neither an order nor a failure: take a guard
/// of each, in an order that all your programs share.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
/// use lockkit_core::{LockClient, MultiLock, memory::MemoryStore};
///
/// let client = LockClient::new(MemoryStore::new())?;
/// let accounts = MultiLock::new([client.lock("account/7")?, client.lock("account/4")?])?;
/// let guard = accounts.acquire().await?;
/// assert_eq!(guard.guards().len(), 2);
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    /// In the order of their names.
    locks: Vec<Lock>,
}

impl MultiLock {
    /// Puts locks together, each with the options it has.
    ///
    /// # Errors
    /// - [`Error::InvalidOption`] if there is none, a name is there twice, or two clients made them.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self> {
        let mut locks: Vec<Lock> = locks.into_iter().collect();
        locks.sort_by(|a, b| a.name().cmp(b.name()));
        let refuse = |what: String| Err(Error::invalid(what));
        if locks.is_empty() {
            return refuse("a lock of several names needs at least one".into());
        }
        for pair in locks.windows(2) {
            if let [a, b] = pair {
                if a.name() == b.name() {
                    return refuse(format!(
                        "`{}` is there twice: name each lock once",
                        a.name()
                    ));
                }
                if !a.has_client_of(b) {
                    return refuse(format!(
                        "`{}` and `{}` belong to two clients: make both with one",
                        a.name(),
                        b.name()
                    ));
                }
            }
        }
        let locks = locks.into_iter().map(Lock::keeping_later);
        let locks = locks.collect();
        Ok(Self { locks })
    }

    /// Waits for all locks, for as long as it takes.
    ///
    /// # Errors
    /// - Those of [`Lock::acquire`].
    /// - [`Error::Lost`] if a lock was lost while the call waited for another.
    ///
    /// No lock is held after an error.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves no hold and no place in a queue behind.
    ///
    /// # Cost
    /// That of one [`Lock::try_acquire`] if all are free; else also an acquire of each name from the first busy one on.
    pub async fn acquire(&self) -> Result<MultiGuard> {
        self.acquire_by(None).await
    }

    /// Waits for all locks, but not longer than `limit` in all. A store that does not answer adds one request timeout, as
    /// in [`Lock::acquire_timeout`].
    ///
    /// # Errors
    /// - [`Error::Timeout`], with the name that was busy to the end.
    /// - Those of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<MultiGuard> {
        self.acquire_by(Some(limit)).await
    }

    async fn acquire_by(&self, limit: Option<Duration>) -> Result<MultiGuard> {
        let began = Instant::now();
        let deadline = limit.and_then(|limit| began.checked_add(limit));
        let mut guards = Vec::with_capacity(self.locks.len());
        for tried in self.try_all(deadline).await {
            match tried {
                Ok(Some(guard)) => guards.push(guard),
                Err(error) if deadline.is_some_and(|end| end <= Instant::now()) => {
                    return Err(error);
                }
                // The wait for this name deals with the error too. Those after it are given back.
                Ok(None) | Err(_) => break,
            }
        }
        let mut held = MultiGuard { guards };
        for lock in self.locks.iter().skip(held.guards.len()) {
            let next = lock.acquire_by(began, deadline);
            let next = held.protect(next).await??;
            held.guards.push(next);
        }
        held.check()?;
        Ok(held.handed_out())
    }

    /// Takes all locks if all are free; `None`, and no lock, if one is not.
    ///
    /// Of two calls at the same time with a name in common, both may return `None`.
    ///
    /// # Errors
    /// - Those of [`Lock::try_acquire`]. No lock is held after an error.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cost
    /// That of one [`Lock::try_acquire`].
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        let tried = self.try_all(None).await;
        let guards: Option<Vec<_>> = tried.into_iter().collect::<Result<_>>()?;
        Ok(guards.map(|guards| MultiGuard { guards }.handed_out()))
    }

    async fn try_all(&self, deadline: Option<Instant>) -> Vec<Result<Option<Guard>>> {
        join_all(self.locks.iter().map(|lock| lock.try_by(deadline))).await
    }

    /// Takes all locks, runs `work` and releases them.
    ///
    /// # Errors
    /// - [`Error::Lost`] if a lock was lost before the work ended, or had already gone when it was
    ///   released. The work may have been done, in part or in whole.
    /// - Those of [`acquire`](Self::acquire). A release that is not answered is no error here.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`; the locks are released in the background.
    pub async fn scope<T>(&self, work: impl AsyncFnOnce(&MultiGuard) -> T) -> Result<T> {
        let guard = self.acquire().await?;
        let value = guard.protect(work(&guard)).await?;
        worked(value, guard.release().await)
    }
}

/// Holds several locks. Dropping it releases all of them in the background.
#[derive(Debug)]
#[must_use = "a guard that is not kept releases its locks at once"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// On its way to the caller: the shortest hold times begin.
    fn handed_out(self) -> Self {
        for guard in &self.guards {
            guard.held().hold.keep_owed();
        }
        self
    }

    /// Begins a [shortest hold time](Lock::with_min_hold) now, for a caller whose work begins later than its hold: for
    /// `lockkit run`.
    #[doc(hidden)]
    pub fn keep_for(&self, least: Duration) {
        for guard in &self.guards {
            guard.held().hold.keep_for(least);
        }
    }

    /// The guard of each lock, with its token, in the order of their names.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// How long all locks are surely held without another renewal; zero if one is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.guards.iter().map(Guard::remaining);
        remaining.min().unwrap_or_default()
    }

    /// Says whether all locks are still held, by the clock and without a round trip.
    ///
    /// # Errors
    /// - [`Error::Lost`] of the first that is not.
    pub fn check(&self) -> Result<()> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Waits until one of the locks is lost, and returns which; for ever if they are released.
    ///
    /// # Cancel safety
    /// As [`Guard::lost`].
    pub fn lost(&self) -> impl Future<Output = (LockName, LossReason)> + Send + use<> {
        let mut losses: Vec<_> = self
            .guards
            .iter()
            .map(|guard| (guard.name().clone(), Box::pin(guard.lost())))
            .collect();
        poll_fn(move |context| {
            for (name, lost) in &mut losses {
                if let Poll::Ready(reason) = lost.as_mut().poll(context) {
                    return Poll::Ready((name.clone(), reason));
                }
            }
            Poll::Pending
        })
    }

    /// Runs `work` and drops it at its next await if one of the locks is lost.
    ///
    /// # Errors
    /// - [`Error::Lost`] as in [`Guard::protect`].
    ///
    /// # Cancel safety
    /// As cancel safe as `work`.
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output> {
        protect(|| self.check(), self.lost(), work).await
    }

    /// Enters all locks again, with the same tokens.
    ///
    /// # Errors
    /// - [`Error::Lost`] if one of the holds was lost.
    ///
    /// # Cost
    /// No round trip.
    pub fn reenter(&self) -> Result<Self> {
        let guards = self.guards.iter().map(Guard::reenter);
        let guards = guards.collect::<Result<_>>()?;
        Ok(Self { guards })
    }

    /// Releases all locks at once, whatever the result of one is.
    ///
    /// # Errors
    /// - [`Error::Lost`] of the first lock that had ended before; else
    /// - [`Error::Backend`] of the first release that was not answered, as in [`Guard::release`].
    ///
    /// # Cancel safety
    /// Cancel safe: the releases go on in the background.
    ///
    /// # Cost
    /// One round trip.
    pub async fn release(self) -> Result<()> {
        let released = join_all(self.guards.into_iter().map(Guard::release)).await;
        let errors = released.into_iter().filter_map(Result::err);
        let worst = errors.min_by_key(|error| !matches!(error, Error::Lost { .. }));
        worst.map_or(Ok(()), Err)
    }
}
