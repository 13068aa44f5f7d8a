//! The store: one transaction of the server for each call of the contract.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use etcd_client::{Txn, TxnResponse};
use lockkit_core::backend::{Attempt, DistributedLock, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, LockName, LossReason, Outcome};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::config::{EtcdStoreBuilder, ROOT};
use crate::desk::{Desk, Found, Refused, Standing, token};
use crate::error::{BACKEND, Failed, fault, unreadable};
use crate::keys::{Layout, Names};
use crate::link::Link;
use crate::mutant::{Broken, EtcdMutant};
use crate::sessions::Sessions;
use crate::steps::{self, Tried};
use crate::watcher::Watcher;

/// A session may end while an attempt is under way; so often another is taken.
const SESSIONS: usize = 3;

/// Keeps locks in an etcd cluster.
///
/// A clone is the same store, with the same session.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_etcd::EtcdStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = EtcdStore::builder().endpoint("127.0.0.1", 2379).connect().await?;
/// let client = LockClient::new(store)?;
/// let guard = client.lock("orders/42")?.acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EtcdStore {
    inner: Arc<Inner>,
}

struct Inner {
    link: Arc<Link>,
    desk: Arc<Desk>,
    sessions: Sessions,
    layout: Layout,
    rules: Capabilities,
    token_base: u64,
    broken: Broken,
    /// The task that hears events ends when this is dropped.
    _open: oneshot::Sender<()>,
}

/// What an [`EtcdStore`] keeps on this side at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Tickets that hold, wait, or whose fate is not known yet.
    pub tickets: usize,
    /// Locks whose keys are watched; for five seconds after the last ticket that needed it.
    pub watches: usize,
}

impl EtcdStore {
    /// The options of a store.
    pub fn builder() -> EtcdStoreBuilder {
        EtcdStoreBuilder::new()
    }

    pub(crate) async fn connect(config: EtcdStoreBuilder) -> Result<Self, BackendError> {
        let runtime = Handle::try_current()
            .map_err(|error| fault("connect", Outcome::Rejected, error.to_string()))?;
        let (rules, broken, token_base) = (config.capabilities(), config.broken, config.token_base);
        let names = if broken.is(EtcdMutant::NamesNotEncoded) {
            Names::Raw
        } else {
            config.names
        };
        let root = match (&config.root, config.names) {
            (Some(root), _) => root.as_str(),
            (None, Names::Encoded) => ROOT,
            (None, Names::Raw) => "",
        };
        let layout = Layout::new(root, names);
        let clock = Arc::clone(&config.clock);
        let link = Arc::new(Link::new(config));
        let desk = Arc::new(Desk::new(broken, token_base));
        let sessions = Sessions::new(&link, &desk, clock, runtime.clone(), broken);
        let (open, closing) = oneshot::channel();
        let watcher = Watcher {
            link: Arc::clone(&link),
            desk: Arc::clone(&desk),
            runtime: runtime.clone(),
        };
        // Detached: it ends with the store.
        drop(runtime.spawn(async move {
            tokio::select! {
                () = watcher.run() => {}
                _ = closing => {}
            }
        }));
        let store = Self {
            inner: Arc::new(Inner {
                link,
                desk,
                sessions,
                layout,
                rules,
                token_base,
                broken,
                _open: open,
            }),
        };
        store.greet().await?;
        Ok(store)
    }

    /// Counts what is kept now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (tickets, watches) = self.inner.desk.counts();
        Counts { tickets, watches }
    }

    /// The leases that the store object holds at the server, for operators and tests: ending one ends
    /// all that stands on it.
    #[must_use]
    pub fn leases(&self) -> Vec<i64> {
        let sessions = self.inner.sessions.all();
        sessions.iter().map(|session| session.lease()).collect()
    }

    pub(crate) fn link(&self) -> &Link {
        &self.inner.link
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    pub(crate) fn desk(&self) -> &Desk {
        &self.inner.desk
    }

    pub(crate) fn token_base(&self) -> u64 {
        self.inner.token_base
    }

    pub(crate) fn broken(&self) -> Broken {
        self.inner.broken
    }

    pub(crate) async fn txn(
        &self,
        operation: &'static str,
        txn: &Txn,
    ) -> Result<TxnResponse, Failed> {
        let link = &self.inner.link;
        link.ask(operation, link.request_timeout(), |client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        })
        .await
    }

    /// A key for the ticket under a session that lives: the one that it has, or a new one.
    async fn stand(&self, ticket: &Ticket) -> Result<Standing, BackendError> {
        let Inner {
            desk,
            sessions,
            layout,
            ..
        } = &*self.inner;
        if let Some(at) = desk.standing(ticket.holder) {
            at.session.touch(at.created.is_none());
            return Ok(at);
        }
        let directory = layout.directory(&ticket.name);
        for _ in 0..SESSIONS {
            let session = sessions.take(ticket.ttl).await?;
            match desk.enter(ticket, &session, &directory) {
                Ok(at) => {
                    at.session.touch(true);
                    return Ok(at);
                }
                Err(Refused::Ended) => {}
                Err(Refused::Released) => {
                    let why = "the ticket was released before";
                    return Err(fault("attempt", Outcome::Rejected, why));
                }
            }
        }
        let why = "sessions end as soon as they begin";
        Err(fault("attempt", Outcome::Unavailable, why))
    }

    async fn try_at(&self, ticket: &Ticket, at: &Standing) -> Result<Tried, Failed> {
        let desk = &self.inner.desk;
        let enqueue = ticket.enqueue || self.inner.broken.is(EtcdMutant::TryLeavesQueueEntry);
        let txn = if at.created.is_some() {
            steps::look(at, desk.nearest(ticket.holder))
        } else if !enqueue {
            steps::try_once(at, ticket)
        } else {
            steps::queue(at, ticket, desk.listed(&at.directory))
        };
        // Before it is written: what a late request puts there must not look like a stranger's.
        desk.writing(ticket.holder);
        let answer = self.txn("attempt", &txn).await;
        let tried = answer.and_then(|answer| {
            let wrong = || Failed::Other(unreadable("attempt"));
            steps::tried(at, &answer).ok_or_else(wrong)
        });
        let found = match &tried {
            Ok(tried) => match tried.created {
                Some(created) if at.created.is_none_or(|at| at == created) => Found::Key {
                    created,
                    first: tried.first,
                    listed: tried.listed.as_ref(),
                },
                _ => Found::Nothing,
            },
            // It may still be carried out.
            Err(Failed::Other(error)) if error.outcome() == Outcome::Indeterminate => {
                return tried;
            }
            Err(_) => {
                desk.failed(ticket.holder);
                return tried;
            }
        };
        desk.answered(ticket.holder, found);
        tried
    }

    /// Deletes the key of a ticket. Answers whether it was a hold until then.
    async fn leave(&self, at: &Standing) -> Result<bool, Failed> {
        let Some(created) = at.created.filter(|_| at.held) else {
            let answer = self.txn("release", &steps::leave(at)).await?;
            return Ok(steps::held(at, &answer));
        };
        let link = &self.inner.link;
        let deleted = link.ask("release", link.request_timeout(), |client| {
            let key = at.key.as_bytes().to_vec();
            async move { client.kv_client().delete(key, Some(steps::end())).await }
        });
        Ok(steps::ended(&deleted.await?, created))
    }

    fn read_attempt(&self, at: &Standing, tried: &Tried) -> Result<Attempt, BackendError> {
        match tried.created {
            Some(created) if tried.first => {
                let token = token(created, self.inner.token_base);
                let token = token.ok_or_else(|| unreadable("attempt"))?;
                Ok(Attempt::Granted(at.session.grant(token)))
            }
            _ => Ok(Attempt::held()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Tickets know their sessions, whose tasks know the desk: one of the three must let go.
        self.desk.close();
    }
}

impl fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdStore")
            .field("layout", &self.inner.layout)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for EtcdStore {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.rules
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        for _ in 0..SESSIONS {
            let at = self.stand(ticket).await?;
            match self.try_at(ticket, &at).await {
                // Its key was deleted, and it needs another: no event has told it yet.
                Ok(tried) if at.created.is_some() && tried.created != at.created => {
                    let desk = &self.inner.desk;
                    desk.lose(ticket.holder, &at.key, LossReason::Superseded);
                }
                Ok(tried) => return self.read_attempt(&at, &tried),
                Err(Failed::LeaseGone) => {
                    at.session.end();
                    self.inner.desk.session_ended(at.session.lease());
                }
                Err(Failed::Other(error)) => return Err(error),
            }
        }
        let why = "sessions end as soon as they begin";
        Err(fault("attempt", Outcome::Unavailable, why))
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        match self.inner.desk.watch(ticket) {
            Some(watch) => Ok(Box::new(watch)),
            None => {
                let why = "the ticket was not attempted, or was released";
                Err(fault("watch", Outcome::Rejected, why))
            }
        }
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        self.renew_all(tickets).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        if self.inner.broken.is(EtcdMutant::ReleaseWithoutOwnerCheck) {
            drop(self.break_lock(&ticket.name).await);
        }
        let desk = &self.inner.desk;
        let Some(at) = desk.known(ticket.holder) else {
            desk.refuse(ticket.holder);
            return Ok(Release::NotHeld);
        };
        let mut released = Release::NotHeld;
        // A lease that has ended has taken its keys with it.
        if at.session.lives() {
            // Before it is written: what is given up here may delete the key later.
            desk.writing(ticket.holder);
            let held = self.leave(&at).await;
            if held.map_err(|failed| failed.into_error("release"))? {
                released = Release::Released;
            }
        }
        desk.released(ticket.holder);
        Ok(released)
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.look(name).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.end(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        self.find(prefix).await
    }

    fn resolve(&self, ticket: &Ticket) -> Ticket {
        ticket.clone()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
