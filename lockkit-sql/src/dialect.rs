//! What each database does in its own way.

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::Capabilities;
use lockkit_core::contract::{Attempt, Ticket};

use crate::config::Options;
use crate::driver::{Driver, Reply, Source, changed};
use crate::error::Result;
use crate::pool::Pool;
use crate::queries::Common;
use crate::session::Session;

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

/// What a store keeps.
#[derive(Debug)]
pub struct Store<S: Steps> {
    pub(crate) pool: Pool<S::Driver>,
    pub(crate) common: Common,
    /// Opened if tickets get wake-ups from it, or holds end with it.
    pub(crate) session: Session,
    /// What only this database has.
    pub(crate) own: S,
}

/// The steps of one database. Each decides by the database's clock alone.
#[async_trait]
pub trait Steps: Debug + Send + Sync + Sized + 'static {
    /// The driver.
    type Driver: Driver;

    /// The most leases in one statement.
    const BATCH: usize = 500;

    /// Whether the server notifies waiters, if they want it.
    const PUSHES: bool = false;

    /// Whether the row of a name must be there before a transaction of an application locks it.
    const ROW_FIRST: bool = false;

    /// Connects, and creates or checks the table. `rules`: what the store will be able to do.
    async fn open(
        source: Source<Self::Driver>,
        options: &Options,
        rules: Capabilities,
    ) -> Result<(Pool<Self::Driver>, Common, Self)>;

    /// Keeps the session open, where a store has one. Opens the `first` one before it returns.
    async fn start_session(_store: &Arc<Store<Self>>, _first: bool) -> Result<()> {
        Ok(())
    }

    /// As [`lockkit_core::DistributedLock::attempt`], of an exclusive ticket. The hold ends with the session of this key, if that is
    /// not 0.
    async fn attempt(store: &Store<Self>, ticket: &Ticket, session: i64) -> Result<Attempt>;

    /// Whether an exclusive hold was released whose lease had not ended; `None` if no row was changed.
    fn in_time(replies: &[Reply<Self::Driver>]) -> Option<bool>;

    /// Whether a transaction of an application took a lock; `None` if the name has no row.
    #[must_use]
    fn taken(replies: &[Reply<Self::Driver>]) -> Option<bool> {
        Some(changed(replies).is_some())
    }
}
