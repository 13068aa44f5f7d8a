//! The store in etcd: one transaction of the server for each call of the contract.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::contract::{
    Attempt, DistributedLock, LockState, Release, Renewal, Ticket, Watch,
};
use lockkit_core::{BackendError, Capabilities, LockName, LossReason, Outcome};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::config::{EtcdStoreBuilder, ROOT};
use crate::error::{BACKEND, Failed, fault, unreadable};
use crate::keys::{Layout, Names};
use crate::link::Link;
use crate::queue::{self, Contender, Tried};
use crate::sessions::Sessions;
use crate::waiters::{Refused, Waiters};
use crate::watch::EtcdWatch;
use crate::watcher::Watcher;

/// A session may end during an attempt. An attempt takes at most this many.
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
    waiters: Arc<Waiters>,
    sessions: Sessions,
    layout: Layout,
    rules: Capabilities,
    token_base: u64,
    /// The task that reads events ends when this is dropped.
    _open: oneshot::Sender<()>,
}

/// What an [`EtcdStore`] keeps in memory at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Tickets that hold, wait, or may still do so.
    pub tickets: usize,
    /// Keys that are watched. A watch ends within a second or two after the last ticket that needs it.
    pub watches: usize,
}

impl EtcdStoreBuilder {
    /// Connects to the first server that answers.
    ///
    /// # Errors
    /// - [`BackendError`] if no server can be reached or this user is refused.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is left behind.
    pub async fn connect(self) -> Result<EtcdStore, BackendError> {
        EtcdStore::connect(self).await
    }
}

impl EtcdStore {
    /// The options of a store.
    pub fn builder() -> EtcdStoreBuilder {
        EtcdStoreBuilder::new()
    }

    pub(crate) async fn connect(config: EtcdStoreBuilder) -> Result<Self, BackendError> {
        let runtime = Handle::try_current()
            .map_err(|error| fault("connect", Outcome::Rejected, error.to_string()))?;
        let (rules, token_base) = (config.capabilities(), config.token_base);
        let root = match (&config.root, config.names) {
            (Some(root), _) => root.as_str(),
            (None, Names::Encoded) => ROOT,
            (None, Names::Raw) => "",
        };
        let layout = Layout::new(root, config.names);
        let clock = Arc::clone(&config.clock);
        let link = Arc::new(Link::new(config));
        let waiters = Arc::new(Waiters::new(token_base));
        let sessions = Sessions::new(&link, &waiters, clock, runtime.clone());
        let (open, closing) = oneshot::channel();
        let watcher = Watcher {
            link: Arc::clone(&link),
            waiters: Arc::clone(&waiters),
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
                waiters,
                sessions,
                layout,
                rules,
                token_base,
                _open: open,
            }),
        };
        store.greet().await?;
        Ok(store)
    }

    /// Counts what the store keeps now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (tickets, watches) = self.inner.waiters.counts();
        Counts { tickets, watches }
    }

    /// The leases of the store at the server, for operators and tests. The end of one ends all its holds.
    #[must_use]
    pub fn leases(&self) -> Vec<i64> {
        let sessions = self.inner.sessions.all();
        sessions.iter().map(|session| session.id()).collect()
    }

    pub(crate) fn link(&self) -> &Link {
        &self.inner.link
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.inner.waiters
    }

    pub(crate) fn token_base(&self) -> u64 {
        self.inner.token_base
    }

    /// Returns the ticket's key under a session that is alive: the one that it has, or a new one.
    async fn contender(&self, ticket: &Ticket) -> Result<Contender, BackendError> {
        let (waiters, sessions) = (&self.inner.waiters, &self.inner.sessions);
        if let Some(at) = waiters.alive(ticket.holder) {
            at.session.touch(at.created.is_none());
            return Ok(at);
        }
        let directory = self.inner.layout.directory(&ticket.name);
        for _ in 0..SESSIONS {
            let session = sessions.take(ticket.ttl).await?;
            match waiters.enter(ticket, &session, &directory) {
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
        Err(sessions_end())
    }

    /// Tries under the sessions that it takes, until one lasts.
    async fn try_sessions(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let waiters = &self.inner.waiters;
        for _ in 0..SESSIONS {
            let at = self.contender(ticket).await?;
            match self.try_under(ticket, &at).await {
                // Its key was deleted, and no event has reported that yet: it needs another.
                Ok(tried) if at.created.is_some() && tried.created != at.created => {
                    waiters.lose(ticket.holder, &at.key, LossReason::Superseded);
                }
                Ok(tried) => return self.read_attempt(&at, &tried),
                Err(Failed::LeaseGone) => {
                    at.session.end();
                    waiters.session_ended(at.session.id());
                }
                Err(Failed::Other(error)) => return Err(error),
            }
        }
        Err(sessions_end())
    }

    async fn try_under(&self, ticket: &Ticket, at: &Contender) -> Result<Tried, Failed> {
        let waiters = &self.inner.waiters;
        if self.still_waits(ticket, at).await? {
            return Ok(Tried {
                created: at.created,
                first: false,
                listing: None,
            });
        }
        let txn = if at.created.is_some() {
            queue::check(at)
        } else if ticket.enqueue {
            queue::enqueue(at, ticket)
        } else {
            queue::try_once(at, ticket)
        };
        // Before it is written, so that a key of a late request is not taken for one without a ticket.
        waiters.request(ticket.holder);
        let answer = self.link().txn("attempt", &txn).await?;
        let unreadable = || Failed::Other(unreadable("attempt"));
        let mut tried = queue::tried(at, &answer).ok_or_else(unreadable)?;
        waiters.tried(at, ticket.holder, &mut tried);
        Ok(tried)
    }

    /// Whether a key that was before the ticket's still is. The whole check follows if not.
    async fn still_waits(&self, ticket: &Ticket, at: &Contender) -> Result<bool, Failed> {
        let nearest = self.inner.waiters.nearest(ticket.holder);
        let Some((created, nearest)) = at.created.zip(nearest) else {
            return Ok(false);
        };
        let txn = queue::still_waits((&at.key, created), &nearest);
        Ok(self.link().txn("attempt", &txn).await?.succeeded())
    }

    /// Deletes the key of a ticket. Returns whether it was a hold.
    async fn delete(&self, at: &Contender) -> Result<bool, Failed> {
        let Some(created) = at.created.filter(|_| at.held) else {
            let answer = self.link().txn("release", &queue::leave(at)).await?;
            return Ok(queue::was_first(at, &answer));
        };
        let deleted = self.link().ask("release", |client| {
            let key = at.key.as_bytes().to_vec();
            async move { client.kv_client().delete(key, Some(queue::release())).await }
        });
        Ok(queue::was_held(&deleted.await?, created))
    }

    fn read_attempt(&self, at: &Contender, tried: &Tried) -> Result<Attempt, BackendError> {
        match tried.created {
            Some(created) if tried.first => {
                let token = queue::token(created, self.inner.token_base);
                let token = token.ok_or_else(|| unreadable("attempt"))?;
                Ok(Attempt::Granted(at.session.grant(token)))
            }
            _ => Ok(Attempt::held()),
        }
    }
}

fn sessions_end() -> BackendError {
    let why = "sessions end as soon as they begin";
    fault("attempt", Outcome::Unavailable, why)
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Tickets keep their sessions, whose tasks keep the tickets.
        self.waiters.close();
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
        let waiters = &self.inner.waiters;
        let number = waiters.attempted(ticket);
        let result = Box::pin(self.try_sessions(ticket)).await;
        waiters.answered(ticket, number, &result);
        result
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        match EtcdWatch::open(&self.inner.waiters, ticket) {
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
        let waiters = &self.inner.waiters;
        let mut released = Release::NotHeld;
        // A lease that has ended has deleted its keys.
        if let Some(at) = waiters
            .known(ticket.holder)
            .filter(|at| at.session.is_alive())
        {
            // Before it is written: a request that is abandoned here may delete the key later.
            waiters.request(ticket.holder);
            let held = self.delete(&at).await;
            if held.map_err(|failed| failed.into_error("release"))? {
                released = Release::Released;
            }
        }
        waiters.released(ticket.holder);
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
