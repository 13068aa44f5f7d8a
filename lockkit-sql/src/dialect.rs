//! What each database does in its own way.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, LockName};
use sqlx::Database;

use crate::config::Options;
use crate::driver::{Driver, Source};
use crate::pool::{Pool, Use};
use crate::steps;
use crate::table::Which;
use crate::template::{Template, Values};

/// A database that can keep locks: [`Postgres`](crate::Postgres), [`Mysql`](crate::Mysql),
/// [`Sqlite`](crate::Sqlite).
///
/// It is sealed: what a database must do is not part of what this crate promises.
pub trait Dialect: Steps {}

impl<S: Steps> Dialect for S {}

/// What a [`SqlStore`](crate::SqlStore) keeps in this process at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Tickets that can get wake-ups.
    pub tickets: usize,
    /// Holds that end with a session of this client.
    pub pins: usize,
    /// Idle connections.
    pub idle: usize,
}

/// The queries of the steps that are alike on all databases.
#[derive(Debug)]
pub struct Common {
    pub(crate) renew: Template,
    pub(crate) list: Template,
    pub(crate) purge: Template,
    /// Returns a row if a hold lasts, and blocks takeovers until its transaction ends.
    pub(crate) guard: Template,
}

/// The steps of one database. Each decides by the database's clock alone.
#[async_trait]
pub trait Steps: Debug + Send + Sync + Sized + 'static {
    /// The driver.
    type Driver: Driver;

    /// The most leases in one statement.
    const BATCH: usize = 500;

    /// The connections that renewals use.
    const RENEWALS: Use = Use::Renewal;

    /// The connections.
    fn pool(&self) -> &Pool<Self::Driver>;

    /// The queries that every database has.
    fn common(&self) -> &Common;

    /// What the store will be able to do.
    fn capabilities(options: &Options) -> Capabilities;

    /// Connects, and creates or checks the table.
    async fn open(source: Source<Self::Driver>, options: Options) -> Result<Self, BackendError>;

    /// As [`lockkit_core::DistributedLock::attempt`].
    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError>;

    /// As [`lockkit_core::DistributedLock::watch`].
    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError>;

    /// As [`lockkit_core::DistributedLock::renew`].
    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let renew = &self.common().renew;
        steps::renew(self.pool(), renew, tickets, Self::BATCH, Self::RENEWALS).await
    }

    /// As [`lockkit_core::DistributedLock::release`].
    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError>;

    /// Lists locks that are held.
    async fn list(&self, which: Which<'_>) -> Result<Vec<LockState>, BackendError> {
        let values = Values::condition(which, Self::Driver::SYNTAX);
        let list = self.common().list.text(&values);
        steps::list(self.pool(), "inspect", &list).await
    }

    /// As [`lockkit_core::DistributedLock::break_lock`].
    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError>;

    /// Deletes rows that were not used for so long. Returns their number.
    async fn purge(&self, unused_for: Duration) -> Result<u64, BackendError> {
        steps::purge(self.pool(), &self.common().purge, unused_for).await
    }

    /// In a transaction of the application: locks the row of a free lock until the transaction ends.
    /// Returns `false` if the lock is held.
    async fn lock_row(
        &self,
        name: &LockName,
        transaction: &mut <Self::Driver as Database>::Connection,
    ) -> Result<bool, BackendError>;

    /// Counts tickets, pins and connections.
    fn counts(&self) -> Counts;
}
