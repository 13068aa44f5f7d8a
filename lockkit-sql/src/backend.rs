//! The store: one step of the database for each call of the contract.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{
    Attempt, DistributedLock, LockState, Release, Renewal, Ticket, Watch,
};
use lockkit_core::{Capabilities, HolderId, LockName};
use tokio::runtime::Handle;

use crate::config::Options;
use crate::dialect::{Counts, Dialect, Steps};
use crate::driver::{Driver as _, Source};
use crate::error::{Errors, Problem, Result, after};
use crate::session::Session;
use crate::shares;
use crate::steps;
use crate::table::{Table, Which};
use crate::turns;

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

struct Inner<D: Dialect> {
    dialect: Arc<D>,
    table: Table,
}

impl<D: Dialect> Drop for Inner<D> {
    fn drop(&mut self) {
        // Its task keeps the rest.
        if let Some(session) = self.dialect.active_session() {
            session.close();
        }
    }
}

impl<D: Dialect> SqlStore<D> {
    pub(crate) async fn connect(source: Source<D::Driver>, options: Options) -> Result<Self> {
        let table = options.table.clone();
        Handle::try_current().map_err(|error| {
            errors::<D>().rejected("connect", Problem::Refused, error.to_string())
        })?;
        let dialect = D::open(source, options).await?;
        let inner = Arc::new(Inner { dialect, table });
        Ok(Self { inner })
    }

    /// The table that keeps the locks.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.inner.table
    }

    /// Counts tickets, pins and connections.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let session = self.dialect().active_session();
        Counts {
            tickets: self.dialect().common().waiters.len(),
            pins: session.map_or(0, Session::holds),
            idle: self.dialect().pool().idle(),
        }
    }

    /// Deletes the rows of locks that were not used for so long. Returns their number.
    ///
    /// A row that is deleted takes its token with it. The next token is at least the database's clock in
    /// microseconds, so that it is still larger unless that clock went back by as much.
    ///
    /// # Errors
    /// - [`BackendError`](lockkit_core::BackendError) if the database failed.
    pub async fn purge(&self, unused_for: Duration) -> Result<u64> {
        let dialect = Arc::clone(self.dialect());
        let runtime = dialect.pool().runtime();
        let purge = async move { steps::purge(&*dialect, unused_for).await };
        steps::run_on(&runtime, errors::<D>(), "purge", purge).await
    }

    pub(crate) fn dialect(&self) -> &Arc<D> {
        &self.inner.dialect
    }

    /// Runs a request as a task, so that a caller that stops polling keeps no connection from others.
    ///
    /// # Cancel safety
    /// Dropped, it cancels the request, which closes the connection of a request without a reply.
    async fn run<T, F>(
        &self,
        operation: &'static str,
        request: impl FnOnce(Arc<D>) -> F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let request = request(Arc::clone(self.dialect()));
        steps::run_on(&Handle::current(), errors::<D>(), operation, request).await
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

#[async_trait]
impl<D: Dialect> DistributedLock for SqlStore<D> {
    fn backend(&self) -> &'static str {
        errors::<D>().backend
    }

    fn address(&self) -> Option<String> {
        Some(self.dialect().pool().address())
    }

    fn capabilities(&self) -> Capabilities {
        self.dialect().common().rules
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt> {
        if self.dialect().active_session().is_some_and(|it| it.pins) {
            // The runtime of the session may have ended.
            let _ = self.dialect().listen();
        }
        let ticket = ticket.clone();
        let attempt = |dialect: Arc<D>| async move {
            let acquire = async |key| match ticket.mode.is_exclusive() {
                true => dialect.attempt(&ticket, key).await,
                false => shares::attempt(&*dialect, &ticket, key).await,
            };
            let waiters = &dialect.common().waiters;
            let number = waiters.attempted(&ticket);
            let result = match dialect.active_session() {
                Some(session) if session.pins => {
                    let address = || dialect.pool().address();
                    session.attempt(&ticket, address, acquire).await
                }
                _ => acquire(0).await,
            };
            waiters.answered(&ticket, number, &result);
            result
        };
        self.run("attempt", attempt).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>> {
        match self.dialect().listen() {
            Ok(()) => Ok(Box::new(self.dialect().common().waiters.watch(ticket))),
            Err(why) => Err(errors::<D>().rejected("watch", Problem::Refused, why)),
        }
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        let all = tickets.to_vec();
        let renew = |dialect: Arc<D>| async move { Ok(steps::renew(&*dialect, &all).await) };
        match self.run("renew", renew).await {
            Ok(results) => results,
            Err(error) => tickets.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release> {
        let ticket = ticket.clone();
        let release = |dialect: Arc<D>| async move {
            let (waits, late) = turns::left(&dialect.common().waiters, ticket.holder);
            if ticket.mode.is_exclusive() && late {
                // First: no late attempt may hold after the release.
                turns::refuse(&dialect, &ticket).await?;
            } else if waits {
                turns::withdraw(&*dialect, &ticket, Duration::ZERO).await?;
            }
            if ticket.mode.is_exclusive() {
                return steps::release(&*dialect, &ticket).await;
            }
            let released = shares::release(&*dialect, &ticket).await?;
            if late {
                // Later: the row that refuses would be that of the hold.
                let refused = turns::refuse(&dialect, &ticket).await;
                refused.map_err(after(true))?;
            }
            Ok(released)
        };
        self.run("release", release).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>> {
        let name = name.clone();
        let list =
            |dialect: Arc<D>| async move { steps::list(&*dialect, Which::Name(&name)).await };
        Ok(self.run("inspect", list).await?.pop())
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>> {
        let name = name.clone();
        let end = |dialect: Arc<D>| async move { steps::break_lock(&*dialect, &name).await };
        self.run("break", end).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let prefix = prefix.to_owned();
        let list =
            |dialect: Arc<D>| async move { steps::list(&*dialect, Which::Prefix(&prefix)).await };
        self.run("inspect", list).await
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool> {
        let (ticket, text) = (ticket.clone(), text.to_owned());
        let note = |dialect: Arc<D>| async move { shares::note(&*dialect, &ticket, &text).await };
        self.run("note", note).await
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt> {
        let ticket = ticket.clone();
        let adopt = |dialect: Arc<D>| async move {
            let waiters = &dialect.common().waiters;
            let number = waiters.attempted(&ticket);
            let result = shares::adopt(&*dialect, from, &ticket).await;
            waiters.answered(&ticket, number, &result);
            result
        };
        self.run("adopt", adopt).await
    }

    fn forget(&self, holder: HolderId) {
        self.dialect().common().waiters.forget(holder);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
