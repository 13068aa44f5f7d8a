//! What a database must be able to do for the store.

use std::fmt::{self, Debug};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, LockName};
use sqlx::Database;

use crate::config::Options;

/// A database that can keep locks: [`Postgres`](crate::Postgres), [`Sqlite`](crate::Sqlite).
///
/// It is closed: what a database must do is not part of what this crate promises.
pub trait Dialect: Steps {}

impl<S: Steps> Dialect for S {}

pub(crate) type Connecting<D> = <<D as Database>::Connection as sqlx::Connection>::Options;

/// Where a store connects to: options of the driver, or those of the application's pool.
///
/// The connections are the store's own, also beside a pool: so nothing that the application does with
/// its pool holds up a renewal, and no session of the application's is changed. The pool's options are
/// read anew for each connection, so that a password which was changed there is used
/// (`Pool::set_connect_options`); its hooks, such as `after_connect`, are not called.
pub struct Source<D: Database>(Origin<D>);

enum Origin<D: Database> {
    Options(Box<Connecting<D>>),
    Pool(sqlx::Pool<D>),
}

impl<D: Database> Source<D> {
    pub(crate) fn new(options: Connecting<D>) -> Self {
        Self(Origin::Options(Box::new(options)))
    }

    /// How to connect now.
    pub(crate) fn options(&self) -> Connecting<D> {
        match &self.0 {
            Origin::Options(options) => (**options).clone(),
            Origin::Pool(pool) => (*pool.connect_options()).clone(),
        }
    }
}

impl<D: Database> From<sqlx::Pool<D>> for Source<D> {
    fn from(pool: sqlx::Pool<D>) -> Self {
        Self(Origin::Pool(pool))
    }
}

/// Shows no more than which it is: the options hold a password. INV-14.
impl<D: Database> Debug for Source<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Origin::Options(_) => "Options",
            Origin::Pool(_) => "Pool",
        })
    }
}

/// What a [`SqlStore`](crate::SqlStore) keeps on this side at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Tickets whose wake-ups are kept.
    pub tickets: usize,
    /// Holds that end with a session of this client.
    pub pins: usize,
    /// Connections that no request uses at the moment.
    pub idle: usize,
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
    fn counts(&self) -> Counts;
}
