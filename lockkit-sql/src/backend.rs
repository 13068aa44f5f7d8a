//! The store: one step of the database for each call of the contract.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{
    Attempt, DistributedLock, LockState, Release, Renewal, Ticket, Watch,
};
use lockkit_core::{BackendError, Capabilities, LockName, Outcome};
use tokio::task::JoinSet;

use crate::config::Options;
use crate::dialect::{Counts, Dialect, Steps};
use crate::driver::{Driver as _, Source};
use crate::error::{Errors, Problem};
use crate::table::{Table, Which};

/// Keeps locks in a table of a database.
///
/// A clone is the same store, on the same connections.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_sql::PostgresStore;
/// use sqlx::postgres::PgConnectOptions;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let server = PgConnectOptions::new().host("db").username("app");
/// let store = PostgresStore::builder(server).connect().await?;
/// let client = LockClient::new(store)?;
/// let guard = client.lock("orders/42")?.acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
pub struct SqlStore<D: Dialect> {
    inner: Arc<Inner<D>>,
}

struct Inner<D> {
    dialect: D,
    rules: Capabilities,
    table: Table,
}

impl<D: Dialect> SqlStore<D> {
    pub(crate) async fn connect(
        source: Source<D::Driver>,
        options: Options,
    ) -> Result<Self, BackendError> {
        let (rules, table) = (D::capabilities(&options), options.table.clone());
        let dialect = D::open(source, options).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                dialect,
                rules,
                table,
            }),
        })
    }

    /// The table that keeps the locks.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.inner.table
    }

    /// Counts tickets, pins and connections.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.inner.dialect.counts()
    }

    /// Deletes the rows of locks that were not used for so long. Returns their number.
    ///
    /// A row that is deleted takes its token with it. The next token is at least the database's clock in
    /// microseconds, so that it is still larger unless that clock went back by as much.
    ///
    /// # Errors
    /// - [`BackendError`] if the database failed.
    pub async fn purge(&self, unused_for: Duration) -> Result<u64, BackendError> {
        let inner = Arc::clone(&self.inner);
        let request = async move { inner.dialect.purge(unused_for).await };
        run::<D, _>("purge", request).await?
    }

    pub(crate) fn dialect(&self) -> &D {
        &self.inner.dialect
    }
}

impl<D: Dialect> Clone for SqlStore<D> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<D: Dialect> fmt::Debug for SqlStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore")
            .field("backend", &errors::<D>().backend)
            .field("table", &self.inner.table)
            .finish_non_exhaustive()
    }
}

const fn errors<D: Dialect>() -> Errors {
    <D as Steps>::Driver::ERRORS
}

/// Runs a request as a task, so that a caller that stops polling keeps no connection from others.
///
/// # Cancel safety
/// Dropped, it cancels the request, which closes the connection of a request without a reply.
async fn run<D: Dialect, T: Send + 'static>(
    operation: &'static str,
    request: impl Future<Output = T> + Send + 'static,
) -> Result<T, BackendError> {
    let mut task = JoinSet::new();
    task.spawn(request);
    match task.join_next().await {
        Some(Ok(result)) => Ok(result),
        // It panicked, or the runtime has stopped.
        _ => {
            let text = "the request ended without a reply";
            let (problem, outcome) = (Problem::Refused, Outcome::Indeterminate);
            Err(errors::<D>().fault(operation, problem, outcome, text))
        }
    }
}

#[async_trait]
impl<D: Dialect> DistributedLock for SqlStore<D> {
    fn backend(&self) -> &'static str {
        errors::<D>().backend
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.rules
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let (inner, ticket) = (Arc::clone(&self.inner), ticket.clone());
        let request = async move { inner.dialect.attempt(&ticket).await };
        run::<D, _>("attempt", request).await?
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        self.inner.dialect.watch(ticket).await
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let (inner, all) = (Arc::clone(&self.inner), tickets.to_vec());
        let request = async move { inner.dialect.renew(&all).await };
        match run::<D, _>("renew", request).await {
            Ok(results) => results,
            Err(error) => tickets.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let (inner, ticket) = (Arc::clone(&self.inner), ticket.clone());
        let request = async move { inner.dialect.release(&ticket).await };
        run::<D, _>("release", request).await?
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let (inner, name) = (Arc::clone(&self.inner), name.clone());
        let request = async move { inner.dialect.list(Which::Name(&name)).await };
        let mut found = run::<D, _>("inspect", request).await??;
        Ok(found.pop())
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let (inner, name) = (Arc::clone(&self.inner), name.clone());
        let request = async move { inner.dialect.break_lock(&name).await };
        run::<D, _>("break", request).await?
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let (inner, prefix) = (Arc::clone(&self.inner), prefix.to_owned());
        let request = async move { inner.dialect.list(Which::Prefix(&prefix)).await };
        run::<D, _>("inspect", request).await?
    }

    fn resolve(&self, ticket: &Ticket) -> Ticket {
        ticket.clone()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
