//! The lock inside the application's own transactions.

use std::ops::{Deref, DerefMut};

use async_trait::async_trait;
use lockkit_core::contract::Ticket;
use lockkit_core::{BackendError, FencingToken, Guard, InvalidName, LockClient, LockName};
use sqlx::{Database, Transaction};

use crate::dialect::Steps;

/// Why a step inside a transaction did not succeed. Roll the transaction back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardedError {
    /// The hold has ended, or somebody is about to take its place: nothing may be written for it.
    #[error("the hold has ended")]
    Fenced,
    /// The store of the client is not in a database of this kind.
    #[error("the client's locks are not in this database")]
    ForeignStore,
    /// The text cannot name a lock.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The database failed.
    #[error("the database failed")]
    Backend(#[from] BackendError),
}

/// What a database does inside a transaction of the application.
#[async_trait]
pub trait Inside: Steps {
    /// Whether the hold stands, and keeps it standing until the transaction ends.
    async fn stands(
        &self,
        ticket: &Ticket,
        token: FencingToken,
        transaction: &mut Transaction<'_, Self::Driver>,
    ) -> Result<bool, BackendError>;

    /// Locks the row of a lock that is free until the transaction ends; `false` if it is not free.
    async fn lock_row(
        &self,
        name: &LockName,
        transaction: &mut Transaction<'_, Self::Driver>,
    ) -> Result<bool, BackendError>;
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
    /// Answers `Ok` if the hold stands, and from then on nobody else can get the lock before the
    /// transaction has ended. No clock is read: the commit is refused or it comes before the next
    /// grant, however long this process was frozen.
    ///
    /// Call it late in the transaction: until its end nobody takes the lock over, also when the
    /// lease has run out.
    ///
    /// # Errors
    /// - [`GuardedError::Fenced`] if the hold has ended: roll back.
    /// - [`GuardedError::ForeignStore`] if the client's store is not in a database of this kind. That it
    ///   is the same database is the caller's affair.
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

/// The store of a client, if it is in this kind of database, and the ticket as it sees it.
pub(crate) async fn still_held<S: Inside>(
    client: &LockClient,
    guard: &Guard,
    transaction: &mut Transaction<'_, S::Driver>,
) -> Result<(), GuardedError> {
    let store = client.store::<crate::SqlStore<S>>();
    let store = store.ok_or(GuardedError::ForeignStore)?;
    let ticket = client.backend().resolve(guard.ticket());
    let stands = store
        .dialect()
        .stands(&ticket, guard.token(), transaction)
        .await?;
    stands.then_some(()).ok_or(GuardedError::Fenced)
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
pub struct TxLock<'t, 'c, S: Inside> {
    transaction: &'t mut Transaction<'c, S::Driver>,
    name: LockName,
}

impl<'t, 'c, S: Inside> TxLock<'t, 'c, S> {
    /// Takes the lock for the transaction; `None` if somebody else has it.
    ///
    /// # Errors
    /// - [`GuardedError::ForeignStore`] if the client's store is not in a database of this kind.
    /// - [`GuardedError::InvalidName`] if `name` cannot name a lock.
    /// - [`GuardedError::Backend`] if the database failed; the transaction may be unusable then.
    ///
    /// # Cancel safety
    /// Roll the transaction back when this was dropped before its end.
    pub async fn take(
        client: &LockClient,
        name: &str,
        transaction: &'t mut Transaction<'c, S::Driver>,
    ) -> Result<Option<Self>, GuardedError> {
        let store = client.store::<crate::SqlStore<S>>();
        let store = store.ok_or(GuardedError::ForeignStore)?;
        let ticket = Ticket::new(
            LockName::new(name)?,
            lockkit_core::HolderId::new(lockkit_core::ClientId::random(), 0),
            std::time::Duration::ZERO,
        );
        // As the store sees it: a prefix of the client is part of the name.
        let name = client.backend().resolve(&ticket).name;
        let taken = store.dialect().lock_row(&name, transaction).await?;
        Ok(taken.then_some(Self { transaction, name }))
    }

    /// The lock's name, as the store keeps it.
    #[must_use]
    pub const fn name(&self) -> &LockName {
        &self.name
    }
}

impl<'c, S: Inside> Deref for TxLock<'_, 'c, S> {
    type Target = Transaction<'c, S::Driver>;

    fn deref(&self) -> &Self::Target {
        self.transaction
    }
}

impl<S: Inside> DerefMut for TxLock<'_, '_, S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.transaction
    }
}

impl<S: Inside> std::fmt::Debug for TxLock<'_, '_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TxLock")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
