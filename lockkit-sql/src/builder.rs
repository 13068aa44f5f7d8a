//! The builder of a store: its options one by one, and the connecting.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use lockkit_core::{BackendError, Capabilities, Outcome, PollRange};

use crate::backend::SqlStore;
use crate::config::{Options, Wake};
use crate::dialect::{Dialect, Source};
use crate::error::SqlFault;
use crate::schema::Schema;
use crate::table::Table;

impl<D: Dialect> SqlStore<D> {
    /// The options of a store: on connections of its own, from the options of `sqlx` for one, or on
    /// the application's pool.
    pub fn builder(source: impl Into<Source<D::Driver>>) -> SqlStoreBuilder<D> {
        SqlStoreBuilder::new(source.into())
    }
}

/// The options of a [`SqlStore`].
#[must_use = "nothing happens before `connect`"]
pub struct SqlStoreBuilder<D: Dialect> {
    source: Source<D::Driver>,
    options: Options,
    /// Host, port, database and TLS, for `Debug`.
    server: String,
    /// Of the certificates that the URL names.
    files: Vec<String>,
    dialect: PhantomData<fn() -> D>,
}

impl<D: Dialect> SqlStoreBuilder<D> {
    pub(crate) fn new(source: Source<D::Driver>) -> Self {
        Self::with(source, Options::default())
    }

    pub(crate) const fn with(source: Source<D::Driver>, options: Options) -> Self {
        Self {
            source,
            options,
            server: String::new(),
            files: Vec::new(),
            dialect: PhantomData,
        }
    }

    /// These must be there when it connects. The driver, which reads them anew for each connection,
    /// would say that something is missing, and not what.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn needing(mut self, files: Vec<String>) -> Self {
        self.files = files;
        self
    }

    /// Where the URL leads, without user and password.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn at(mut self, server: String) -> Self {
        self.server = server;
        self
    }

    /// The table that keeps the locks; `lockkit_locks` if it is not set.
    pub fn table(mut self, table: Table) -> Self {
        self.options.table = table;
        self
    }

    /// Whether the table is made, checked or trusted.
    pub const fn schema(mut self, schema: Schema) -> Self {
        self.options.schema = schema;
        self
    }

    /// How waiters learn of a free lock.
    pub const fn wake(mut self, wake: Wake) -> Self {
        self.options.wake = wake;
        self
    }

    /// The pauses of waiters between two looks; they grow from the shortest to the longest. With
    /// [`Wake::Push`] the longest is how long a lost wake-up can go unnoticed.
    pub const fn poll(mut self, pauses: PollRange) -> Self {
        self.options.poll = pauses;
        self
    }

    /// The most connections for steps; one more is kept for renewals, and one for wake-ups and the session
    /// of the client.
    pub const fn connections(mut self, most: usize) -> Self {
        self.options.connections = most;
        self
    }

    /// The longest that connecting may take.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// Ties holds to a session of this client, so that a crash frees them at once. Pinned holds and others
    /// exclude each other. Refused behind a pooler in transaction mode.
    pub const fn pin(mut self, pin: bool) -> Self {
        self.options.pin = pin;
        self
    }

    /// Whether sessions keep the statements of a step prepared, which makes it cheaper for the server. Turn
    /// it off behind a pooler in transaction mode; with [`Wake::Poll`] PostgreSQL prepares nothing. SQLite
    /// has no sessions.
    pub const fn prepare(mut self, prepare: bool) -> Self {
        self.options.prepare = prepare;
        self
    }

    /// Opens a file of SQLite on a network file system too, where machines may not see each other's
    /// locks and can destroy the file.
    pub const fn allow_network_fs(mut self, allow: bool) -> Self {
        self.options.allow_network_fs = allow;
        self
    }

    /// What the store will be able to do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        D::capabilities(&self.options)
    }

    /// Connects, and makes or checks the table.
    ///
    /// # Errors
    /// - [`BackendError`] if the database cannot be reached, refuses this user, or has a table of that
    ///   name that does not fit. Its source is a [`SqlFault`](crate::SqlFault).
    ///
    /// # Cancel safety
    /// Cancel safe: nothing stays behind but perhaps the table.
    pub async fn connect(self) -> Result<SqlStore<D>, BackendError> {
        for file in &self.files {
            std::fs::File::open(file).map_err(|error| {
                let text = format!("TLS: `{file}` cannot be used: {error}");
                let fault = SqlFault::refused(text);
                BackendError::new(D::BACKEND, "connect", Outcome::Rejected, fault)
            })?;
        }
        SqlStore::connect(self.source, self.options).await
    }
}

/// Shows neither user nor password. INV-14.
impl<D: Dialect> fmt::Debug for SqlStoreBuilder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStoreBuilder")
            .field("backend", &D::BACKEND)
            .field("server", &self.server)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
