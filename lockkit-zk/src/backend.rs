//! The store: one step for each call of the contract.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::backend::{
    Attempt, DistributedLock, Grant, LockState, Release, Renewal, Ticket, Watch,
};
use lockkit_core::{BackendError, Capabilities, FencingToken, LockName, Outcome};

use crate::config::{Access, ZkStoreBuilder, capabilities};
use crate::error::{BACKEND, fault};
use crate::keys::Keys;
use crate::session::{Session, Sessions};
use crate::waiters::{Node, Places};
use crate::watch::{Sight, ZkWatch};

/// Keeps locks in an ensemble of ZooKeeper servers.
///
/// A clone is the same store, with the same session. When the last one is gone the session is closed,
/// and with it all its holds.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_zk::ZkStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = ZkStore::builder().host("127.0.0.1", 2181).connect().await?;
/// let client = LockClient::new(store)?;
/// let guard = client.lock("orders/42")?.acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ZkStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) places: Places,
    pub(crate) keys: Keys,
    pub(crate) access: Access,
    rules: Capabilities,
    token_base: u64,
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<crate::ZkMutant>,
}

/// What a [`ZkStore`] keeps on this side at a moment. All zero when nobody uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Tickets that hold, wait, or whose fate is not known yet.
    pub tickets: usize,
}

impl Inner {
    /// The token of a hold by a node: the transaction that made it. INV-4.
    pub(crate) fn token(&self, czxid: i64) -> Result<FencingToken, BackendError> {
        let number = u64::try_from(czxid).ok();
        let token = number.and_then(|number| number.checked_add(self.token_base));
        token.and_then(FencingToken::new).ok_or_else(|| {
            let why = "the token does not fit: is `token_base` too large?";
            fault("attempt", Outcome::Rejected, why)
        })
    }

    /// The grant of a hold by a node, on a session whose age counts. INV-2.
    pub(crate) fn grant(&self, session: &Session, node: &Node) -> Result<Grant, BackendError> {
        #[cfg(feature = "mutants")]
        if let Some(grant) = self.broken_grant(session, node) {
            return Ok(grant);
        }
        let token = self.token(node.czxid)?;
        Ok(Grant::new(token, session.lease()).with_since(session.since()))
    }
}

impl ZkStore {
    /// The options of a store.
    pub fn builder() -> ZkStoreBuilder {
        ZkStoreBuilder::new()
    }

    pub(crate) async fn connect(config: ZkStoreBuilder) -> Result<Self, BackendError> {
        let keys = Keys::new(&config.root, config.names, config.dialect);
        let (access, token_base, recheck) = (config.who_may(), config.token_base, config.recheck);
        #[cfg(feature = "mutants")]
        let mutant = config.mutant;
        let sessions = Sessions::begin(config).await?;
        let rules = capabilities(sessions.present().timeout(), recheck);
        Ok(Self {
            inner: Arc::new(Inner {
                sessions,
                places: Places::default(),
                keys,
                access,
                rules,
                token_base,
                #[cfg(feature = "mutants")]
                mutant,
            }),
        })
    }

    /// Counts what is kept now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let tickets = self.inner.places.count();
        Counts { tickets }
    }

    /// The number of the present session, as the servers' logs and commands write it in hexadecimal.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.inner.sessions.present().id()
    }

    /// Ends the present session at the ensemble, as if it had run out: all its holds are lost and its
    /// places in queues are gone. The next attempt begins another. For operators and tests.
    ///
    /// # Errors
    /// - [`BackendError`] if the ensemble cannot be reached.
    ///
    /// # Cancel safety
    /// Dropped, it may still be carried out.
    pub async fn expire_session(&self) -> Result<(), BackendError> {
        self.inner.sessions.expire().await
    }
}

impl fmt::Debug for ZkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkStore")
            .field("sessions", &self.inner.sessions)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for ZkStore {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.rules
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.inner.attempt(ticket).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        let place = self.inner.places.of(ticket.holder);
        let found = place.and_then(|place| Some((place.node.clone()?, place)));
        let Some((node, place)) = found else {
            let why = "the ticket has no node that is known";
            return Err(fault("watch", Outcome::Unavailable, why));
        };
        let sight = Sight::open(&self.inner, ticket.holder, place, node).await?;
        Ok(Box::new(ZkWatch::new(&self.inner, ticket.holder, sight)))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let mut answers = Vec::with_capacity(tickets.len());
        for chunk in tickets.chunks(crate::renew::CHUNK) {
            answers.extend(self.inner.renew(chunk).await);
        }
        answers
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.inner.release(ticket).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.inner.look(name).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.inner.end(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        self.inner.find(prefix).await
    }

    fn resolve(&self, ticket: &Ticket) -> Ticket {
        ticket.clone()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
