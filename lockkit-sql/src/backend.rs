//! The store: one step of the database for each call of the contract.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{
    Attempt, DistributedLock, LockState, Release, Renewal, Ticket, Watch,
};
use lockkit_core::{Capabilities, HolderId, LockName, Waiting};
use tokio::runtime::Handle;

use crate::config::Options;
use crate::dialect::{Counts, Dialect, Steps, Store};
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
    store: Arc<Store<D>>,
    table: Table,
}

impl<D: Dialect> Drop for Inner<D> {
    fn drop(&mut self) {
        // Its task keeps the rest.
        self.store.session.close();
    }
}

impl<D: Dialect> SqlStore<D> {
    pub(crate) async fn connect(source: Source<D::Driver>, options: Options) -> Result<Self> {
        Handle::try_current().map_err(|error| {
            errors::<D>().rejected("connect", Problem::Refused, error.to_string())
        })?;
        let rules = options.capabilities(D::PUSHES);
        let (pool, common, own) = D::open(source, &options, rules).await?;
        let waiters = Arc::clone(&common.waiters);
        let session = Session::new(errors::<D>(), options.pin, waiters);
        let store = Arc::new(Store {
            pool,
            common,
            session,
            own,
        });
        if options.pin {
            D::start_session(&store, true).await?;
        }
        let table = options.table;
        Ok(Self {
            inner: Arc::new(Inner { store, table }),
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
        let store = self.store();
        Counts {
            tickets: store.common.waiters.len(),
            pins: store.session.holds(),
            idle: store.pool.idle(),
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
        let store = Arc::clone(self.store());
        let runtime = store.pool.runtime();
        let purge = async move { steps::purge(&store, unused_for).await };
        steps::run_on(&runtime, errors::<D>(), "purge", purge).await
    }

    pub(crate) fn store(&self) -> &Arc<Store<D>> {
        &self.inner.store
    }

    /// Runs a request as a task, so that a caller that stops polling keeps no connection from others.
    ///
    /// # Cancel safety
    /// Dropped, it cancels the request, which closes the connection of a request without a reply.
    async fn run<T, F>(
        &self,
        operation: &'static str,
        request: impl FnOnce(Arc<Store<D>>) -> F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let request = request(Arc::clone(self.store()));
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
        Some(self.store().pool.address())
    }

    fn capabilities(&self) -> Capabilities {
        self.store().common.rules
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt> {
        if self.store().session.pins {
            // The runtime of the session may have ended.
            D::start_session(self.store(), false).await?;
        }
        let ticket = ticket.clone();
        let attempt = |store: Arc<Store<D>>| async move {
            let acquire = async |key| match ticket.mode.is_exclusive() {
                true => D::attempt(&store, &ticket, key).await,
                false => shares::attempt(&store, &ticket, key).await,
            };
            let waiters = &store.common.waiters;
            let number = waiters.attempted(&ticket);
            let result = match store.session.pins {
                true => {
                    let address = || store.pool.address();
                    store.session.attempt(&ticket, address, acquire).await
                }
                false => acquire(0).await,
            };
            waiters.answered(&ticket, number, &result);
            result
        };
        self.run("attempt", attempt).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>> {
        let store = self.store();
        if !store.session.pins && store.common.rules.waiting != Waiting::Push {
            let why = "this store gets no notifications: its waiters poll";
            return Err(errors::<D>().rejected("watch", Problem::Refused, why));
        }
        D::start_session(store, false).await?;
        Ok(Box::new(store.common.waiters.watch(ticket)))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        let all = tickets.to_vec();
        let renew = |store: Arc<Store<D>>| async move { Ok(steps::renew(&store, &all).await) };
        match self.run("renew", renew).await {
            Ok(results) => results,
            Err(error) => tickets.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release> {
        let ticket = ticket.clone();
        let release = |store: Arc<Store<D>>| async move {
            let (waits, late) = turns::left(&store.common.waiters, ticket.holder);
            let alone = ticket.mode.is_exclusive();
            if waits || alone && late {
                // First: no late attempt may hold after the release.
                turns::withdraw(&store, &ticket, alone && late).await?;
            }
            if alone {
                return steps::release(&store, &ticket).await;
            }
            let released = shares::release(&store, &ticket).await?;
            if late {
                // Later: the row that refuses would be that of the hold.
                let refused = turns::withdraw(&store, &ticket, true).await;
                refused.map_err(after(true))?;
            }
            Ok(released)
        };
        self.run("release", release).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>> {
        let name = name.clone();
        let list =
            |store: Arc<Store<D>>| async move { steps::list(&store, Which::Name(&name)).await };
        Ok(self.run("inspect", list).await?.pop())
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>> {
        let name = name.clone();
        let end = |store: Arc<Store<D>>| async move { steps::break_lock(&store, &name).await };
        self.run("break", end).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let prefix = prefix.to_owned();
        let list =
            |store: Arc<Store<D>>| async move { steps::list(&store, Which::Prefix(&prefix)).await };
        self.run("inspect", list).await
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool> {
        let (ticket, text) = (ticket.clone(), text.to_owned());
        let note = |store: Arc<Store<D>>| async move { shares::note(&store, &ticket, &text).await };
        self.run("note", note).await
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt> {
        let ticket = ticket.clone();
        let adopt = |store: Arc<Store<D>>| async move {
            let waiters = &store.common.waiters;
            let number = waiters.attempted(&ticket);
            let result = shares::adopt(&store, from, &ticket).await;
            waiters.answered(&ticket, number, &result);
            result
        };
        self.run("adopt", adopt).await
    }

    fn forget(&self, holder: HolderId) {
        self.store().common.waiters.forget(holder);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
