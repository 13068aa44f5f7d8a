//! The builder of a store: its options one by one, and the connecting.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use lockkit_core::url::Tls;
use lockkit_core::{Capabilities, PollRange};

use crate::backend::SqlStore;
use crate::config::{Options, Schema, Wake};
use crate::dialect::{Dialect, Steps};
use crate::driver::{Driver as _, Source};
use crate::error::{Problem, Result};
use crate::table::Table;
use crate::url::authorities;

impl<D: Dialect> SqlStore<D> {
    /// The options of a store that connects with options of `sqlx`, or with those of the application's
    /// pool.
    pub fn builder(source: impl Into<Source<D::Driver>>) -> SqlStoreBuilder<D> {
        SqlStoreBuilder::with(source.into(), Options::default(), Tls::new())
    }
}

/// The options of a [`SqlStore`].
#[must_use = "nothing happens before `connect`"]
pub struct SqlStoreBuilder<D: Dialect> {
    source: Source<D::Driver>,
    options: Options,
    tls: Tls,
    dialect: PhantomData<fn() -> D>,
}

impl<D: Dialect> SqlStoreBuilder<D> {
    /// `tls`: the certificates that the URL names.
    pub(crate) const fn with(source: Source<D::Driver>, options: Options, tls: Tls) -> Self {
        Self {
            source,
            options,
            tls,
            dialect: PhantomData,
        }
    }

    /// The table that keeps the locks; `lockkit_locks` if it is not set.
    pub fn table(mut self, table: Table) -> Self {
        self.options.table = table;
        self
    }

    /// Whether a missing table is created.
    pub const fn schema(mut self, schema: Schema) -> Self {
        self.options.schema = schema;
        self
    }

    /// How waiters learn of a free lock.
    pub const fn wake(mut self, wake: Wake) -> Self {
        self.options.wake = wake;
        self
    }

    /// The pauses between two polls of a waiter, which grow from the shortest to the longest. With
    /// [`Wake::Push`] a lost wake-up goes unnoticed for the longest.
    pub const fn poll(mut self, pauses: PollRange) -> Self {
        self.options.poll = Some(pauses);
        self
    }

    /// The most connections for acquires and releases, from 1 to 1000. There is one more for renewals, and one for wake-ups
    /// and the session of the client. SQLite has one for all.
    pub const fn connections(mut self, most: usize) -> Self {
        self.options.connections = most;
        self
    }

    /// The longest that connecting may take, and then each request that opens the store.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// Ties holds to a session of this client, so that a crash frees them in about a second. Pinned holds and others
    /// exclude each other. Refused behind a pooler in transaction mode, and by SQLite, which has no sessions.
    pub const fn pin(mut self, pin: bool) -> Self {
        self.options.pin = pin;
        self
    }

    /// Whether connections prepare the statements of acquire and release, on PostgreSQL also those of readers and
    /// permits, which makes them cheaper for the server. Write `false` behind a pooler in transaction mode. With
    /// [`Wake::Poll`] PostgreSQL prepares nothing. It has no effect on SQLite.
    pub const fn prepare(mut self, prepare: bool) -> Self {
        self.options.prepare = prepare;
        self
    }

    /// Whether a file of SQLite may be on a network file system, where machines may not see each other's
    /// locks and can destroy the file.
    pub const fn allow_network_fs(mut self, allow: bool) -> Self {
        self.options.allow_network_fs = allow;
        self
    }

    /// What the store will be able to do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.options.capabilities(D::PUSHES)
    }

    /// Connects, and creates or checks the table.
    ///
    /// # Errors
    /// - [`BackendError`](lockkit_core::BackendError) if the database cannot be reached, refuses this user,
    ///   or has a table of that name that does not fit. Its source is a [`SqlFault`](crate::SqlFault).
    ///
    /// # Cancel safety
    /// Cancel safe: at most the table is left behind.
    pub async fn connect(self) -> Result<SqlStore<D>> {
        let identity = self.tls.shown().into_iter();
        let identity = identity.flat_map(|(certificate, key)| [certificate, key]);
        // The driver reads the files for each connection, and its error does not name the file.
        for file in authorities(&self.tls).into_iter().chain(identity) {
            std::fs::File::open(file).map_err(|error| {
                let text = format!("TLS: `{}` cannot be used: {error}", file.display());
                <D as Steps>::Driver::ERRORS.rejected("connect", Problem::Refused, text)
            })?;
        }
        SqlStore::connect(self.source, self.options).await
    }
}

/// Shows neither user nor password. INV-14.
impl<D: Dialect> fmt::Debug for SqlStoreBuilder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStoreBuilder")
            .field("backend", &<D as Steps>::Driver::ERRORS.backend)
            .field("server", &self.source.read(D::Driver::shown))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
