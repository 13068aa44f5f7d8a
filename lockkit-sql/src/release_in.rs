//! The release of a lock inside a transaction of the application.

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::store::waiters::Waiters;
use lockkit_core::{BackendError, DeferredRelease, Error, Guard, HolderId};
use sqlx::{Database, Execute, Transaction};

use crate::backend::SqlStore;
use crate::driver::{Driver, prepared, send, text};
use crate::guarded::{GuardedError, Stored, refuse_shared};
use crate::places::Known;
use crate::turns;
use crate::values::Values;

/// Releases a lock with a transaction of the application, where both are in one database.
///
/// # Examples
/// ```no_run
/// use lockkit_core::Guard;
/// use lockkit_sql::ReleaseIn as _;
/// use sqlx::PgPool;
///
/// # async fn example(guard: Guard, pool: PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = pool.begin().await?;
/// sqlx::query("UPDATE stock SET n = n - 1 WHERE id = 42")
///     .execute(&mut *transaction)
///     .await?;
/// let released = guard.release_in(&mut transaction).await?;
/// transaction.commit().await?;
/// released.committed();
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait ReleaseIn<D: Database> {
    /// Releases the lock when the transaction commits, if it is still held: the data and the release become
    /// visible together. No client gets the lock before, no clock is read, and nothing is written if the hold
    /// has ended. A rollback leaves the lock held, until the client releases it in the background.
    ///
    /// Call it last in the transaction, and commit at once: until then no client gets the lock, even when the
    /// lease has ended, and the client does not renew it any more.
    ///
    /// # Errors
    /// In each case roll back; the guard is gone, as if it had been dropped.
    /// - [`GuardedError::Fenced`] if the hold has ended.
    /// - [`GuardedError::Refused`] if the hold has other guards or is to be kept after its last one, and if
    ///   it is one to read or a permit.
    /// - [`GuardedError::ForeignStore`] if the guard's store is not in a database of this kind. The caller
    ///   ensures that it is the same database.
    /// - [`GuardedError::Backend`] if the database failed.
    ///
    /// # Cancel safety
    /// Roll the transaction back when this was dropped before its end. The client releases the lock.
    ///
    /// # Cost
    /// One round trip, and none after the commit. Two on PostgreSQL if another request has locked the row of the
    /// lock, or the hold has ended; the first in a connection prepares a statement there.
    async fn release_in(
        self,
        transaction: &mut Transaction<'_, D>,
    ) -> Result<UncommittedRelease, GuardedError>;
}

/// The release of a lock in a transaction that has not ended: by [`ReleaseIn::release_in`].
///
/// When it is dropped, the client releases the lock in the background: after a rollback, and where it is not
/// known whether the commit succeeded.
#[must_use = "tell it of the commit, or the client releases the lock once more"]
#[derive(Debug)]
pub struct UncommittedRelease {
    waiters: Arc<Waiters<Known>>,
    holder: HolderId,
    release: DeferredRelease,
}

impl UncommittedRelease {
    /// The transaction was committed, up to the outermost one: the lock is released.
    ///
    /// # Cost
    /// No round trip. If an attempt to acquire this lock had no reply, the client makes sure in the background
    /// that it has no effect any more.
    pub fn committed(self) {
        if turns::left(&self.waiters, self.holder) == (false, false) {
            self.release.done();
        }
    }
}

#[async_trait]
impl<D: Stored> ReleaseIn<D> for Guard {
    async fn release_in(
        self,
        transaction: &mut Transaction<'_, D>,
    ) -> Result<UncommittedRelease, GuardedError> {
        let backend = Arc::clone(self.backend());
        let store = backend.as_any().downcast_ref();
        let store: &SqlStore<D::Dialect> = store.ok_or(GuardedError::ForeignStore)?;
        let common = &store.store().common;
        let (ticket, token) = (self.ticket().clone(), self.token());
        refuse_shared(&self, "be released in")?;
        let values = Values::of(&ticket).number("token", token.get().cast_signed());
        // No renewal finds the lock released.
        let release = self.defer_release().map_err(|error| match error {
            Error::Lost { .. } => GuardedError::Fenced,
            error => GuardedError::Refused(error),
        })?;
        let mut released = false;
        if let Some(at_once) = &common.release_in_at_once {
            released = ends_hold(transaction, prepared(at_once, &values)).await?;
        }
        if !released {
            let query = common.release_in.text(&values);
            released = ends_hold(transaction, text(&query)).await?;
        }
        released.then_some(()).ok_or(GuardedError::Fenced)?;
        Ok(UncommittedRelease {
            waiters: Arc::clone(&common.waiters),
            holder: ticket.holder,
            release,
        })
    }
}

/// Sends a query whose last statement is the release.
async fn ends_hold<D: Driver>(
    transaction: &mut Transaction<'_, D>,
    query: impl Execute<'static, D> + 'static,
) -> Result<bool, BackendError> {
    let replies = send::<D>(&mut **transaction, "release", query).await?;
    Ok(replies.last().is_some_and(|reply| reply.changed > 0))
}
