//! What a database must be able to do for the store.

use std::fmt::{self, Debug};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::backend::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, LockName};
use sqlx::Database;

use crate::config::Options;

/// A database that can keep locks: [`Postgres`](crate::Postgres), [`Sqlite`](crate::Sqlite).
///
/// It is closed: what a database must do is not part of what this crate promises.
pub trait Dialect: Steps {}

impl<S: Steps> Dialect for S {}

/// Where connections come from.
#[non_exhaustive]
pub enum Source<D: Database> {
    /// Connections of the store's own, so that nothing that the application does with its pool holds
    /// up a renewal.
    Own(Box<<D::Connection as sqlx::Connection>::Options>),
    /// The application's pool. A pool that is exhausted delays renewals, and in the end loses holds.
    Application(sqlx::Pool<D>),
}

/// Shows no more than which it is: the options hold a password. INV-14.
impl<D: Database> Debug for Source<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own(_) => "Own",
            Self::Application(_) => "Application",
        })
    }
}

/// Which locks to look at.
#[derive(Clone, Copy, Debug)]
pub enum Which<'a> {
    /// One.
    Name(&'a LockName),
    /// Those whose names begin so and that somebody holds.
    Prefix(&'a str),
}

/// The steps of one database. Each is one request and decides by the database's clock alone.
#[async_trait]
pub trait Steps: Debug + Send + Sync + Sized + 'static {
    /// The driver.
    type Driver: Database;

    /// The store's name in messages.
    const BACKEND: &'static str;

    /// What the store will be able to do.
    fn capabilities(options: &Options) -> Capabilities;

    /// Connects, and makes or checks the table.
    async fn open(source: Source<Self::Driver>, options: Options) -> Result<Self, BackendError>;

    /// As [`lockkit_core::DistributedLock::attempt`].
    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError>;

    /// As [`lockkit_core::DistributedLock::watch`].
    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError>;

    /// As [`lockkit_core::DistributedLock::renew`].
    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>>;

    /// As [`lockkit_core::DistributedLock::release`].
    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError>;

    /// Looks at locks that somebody holds.
    async fn look(&self, which: Which<'_>) -> Result<Vec<LockState>, BackendError>;

    /// As [`lockkit_core::DistributedLock::break_lock`].
    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError>;

    /// Deletes the rows that nobody has used for so long; answers how many.
    async fn purge(&self, unused_for: Duration) -> Result<u64, BackendError>;

    /// How many sessions, tickets and pins are kept now.
    fn counts(&self) -> crate::backend::Counts;
}
