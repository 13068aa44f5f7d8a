//! Locks inside transactions of the application.

use std::ops::{Deref, DerefMut};

use async_trait::async_trait;
use lockkit_core::{BackendError, Error, Guard, InvalidName, LockClient, LockName};
use sqlx::{Database, Transaction};

use crate::backend::SqlStore;
use crate::dialect::Dialect;
use crate::driver::{Driver, rows, send, text};
use crate::steps::lock_row;
use crate::values::Values;

/// Why a step inside a transaction did not succeed. Roll the transaction back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardedError {
    /// The hold has ended, or another client is taking the lock over: nothing may be written for it.
    #[error("the hold has ended")]
    Fenced,
    /// The store of the client is not in a database of this kind.
    #[error("the client's locks are not in this database")]
    ForeignStore,
    /// The client refuses: the hold has other guards, is to be kept after its last one, or shares its lock; or the
    /// name is too long with the client's prefix.
    #[error(transparent)]
    Refused(Error),
    /// The text cannot name a lock.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The database failed. The message names the causes, as that of [`Error::Backend`].
    #[error("{}", Error::from(.0.clone()))]
    Backend(#[from] BackendError),
}

/// Ties a transaction of the application to a hold, where both are in one database.
///
/// # Examples
/// ```no_run
/// use lockkit_core::{Guard, LockClient};
/// use lockkit_sql::StillHeld as _;
/// use sqlx::PgPool;
///
/// # async fn example(client: LockClient, guard: Guard, pool: PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = pool.begin().await?;
/// sqlx::query("UPDATE stock SET n = n - 1 WHERE id = 42")
///     .execute(&mut *transaction)
///     .await?;
/// client.still_held(&guard, &mut transaction).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait StillHeld<D: Database> {
    /// Returns `Ok` if the lock is still held. From then on no other client can get the lock until the
    /// transaction has ended. No clock is read: either the commit is refused or it comes before the next
    /// grant, however long this process was frozen.
    ///
    /// Call it late in the transaction: until its end no client takes the lock over, even when the lease
    /// has ended.
    ///
    /// # Errors
    /// - [`GuardedError::Fenced`] if the hold has ended: roll back.
    /// - [`GuardedError::Refused`] if the hold is one to read or a permit.
    /// - [`GuardedError::ForeignStore`] if the client's store is not in a database of this kind. The caller
    ///   ensures that it is the same database.
    /// - [`GuardedError::Backend`] if the database failed.
    ///
    /// # Cost
    /// One round trip.
    async fn still_held(
        &self,
        guard: &Guard,
        transaction: &mut Transaction<'_, D>,
    ) -> Result<(), GuardedError>;
}

/// A driver whose database can keep locks.
pub trait Stored: Driver {
    /// The database.
    type Dialect: Dialect<Driver = Self>;
}

#[async_trait]
impl<D: Stored> StillHeld<D> for LockClient {
    async fn still_held(
        &self,
        guard: &Guard,
        transaction: &mut Transaction<'_, D>,
    ) -> Result<(), GuardedError> {
        let store: Option<&SqlStore<D::Dialect>> = self.store();
        let store = store.ok_or(GuardedError::ForeignStore)?;
        refuse_shared(guard, "guard")?;
        let token = guard.token().get().cast_signed();
        let values = Values::of(guard.ticket()).number("token", token);
        let query = store.store().common.guard.text(&values);
        let replies = send::<D>(&mut **transaction, "guard", text(&query)).await?;
        let held = rows(&replies).next().is_some();
        held.then_some(()).ok_or(GuardedError::Fenced)
    }
}

/// Refuses a hold beside others, whose row does not keep writers out until the transaction ends.
pub(crate) fn refuse_shared(guard: &Guard, what: &str) -> Result<(), GuardedError> {
    let mode = guard.ticket().mode;
    if mode.is_exclusive() {
        return Ok(());
    }
    let what = format!("a hold to {mode} cannot {what} a transaction");
    Err(GuardedError::Refused(Error::InvalidOption { what }))
}

/// A lock that lasts as long as a transaction of the application, and no longer.
///
/// It excludes holds of the same name, and they exclude it. It is not renewed, cannot be lost before
/// the transaction is, and has no token: what it protects is written in the same transaction.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_sql::{Postgres, TxLock};
/// use sqlx::PgPool;
///
/// # async fn example(client: LockClient, pool: PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = pool.begin().await?;
/// if let Some(mut lock) = TxLock::<Postgres>::take(&client, "stock/42", &mut transaction).await? {
///     sqlx::query("UPDATE stock SET n = n - 1 WHERE id = 42")
///         .execute(&mut **lock)
///         .await?;
///     transaction.commit().await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct TxLock<'t, 'c, S: Dialect> {
    transaction: &'t mut Transaction<'c, S::Driver>,
    name: LockName,
}

impl<'t, 'c, S: Dialect> TxLock<'t, 'c, S> {
    /// Takes the lock for the transaction; `None` if it is held. On MySQL and MariaDB, end the transaction soon after
    /// `None`: if the lock was taken in this very moment, its row stays locked until then, and the holder cannot renew.
    ///
    /// # Errors
    /// - [`GuardedError::ForeignStore`] if the client's store is not in a database of this kind.
    /// - [`GuardedError::InvalidName`] if `name` cannot name a lock.
    /// - [`GuardedError::Refused`] if it is too long with the client's prefix.
    /// - [`GuardedError::Backend`] if the database failed; the transaction may be unusable then.
    ///
    /// # Cancel safety
    /// Roll the transaction back when this was dropped before its end.
    pub async fn take(
        client: &LockClient,
        name: &str,
        transaction: &'t mut Transaction<'c, S::Driver>,
    ) -> Result<Option<Self>, GuardedError> {
        let store: Option<&SqlStore<S>> = client.store();
        let store = store.ok_or(GuardedError::ForeignStore)?;
        let lock = client.lock(LockName::new(name)?);
        let name = lock.map_err(GuardedError::Refused)?.stored_name().clone();
        let taken = lock_row(store.store(), &name, &mut **transaction).await?;
        Ok(taken.then_some(Self { transaction, name }))
    }

    /// The lock's name, as the store keeps it.
    #[must_use]
    pub const fn name(&self) -> &LockName {
        &self.name
    }
}

impl<'c, S: Dialect> Deref for TxLock<'_, 'c, S> {
    type Target = Transaction<'c, S::Driver>;

    fn deref(&self) -> &Self::Target {
        self.transaction
    }
}

impl<S: Dialect> DerefMut for TxLock<'_, '_, S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.transaction
    }
}

impl<S: Dialect> std::fmt::Debug for TxLock<'_, '_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxLock")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
