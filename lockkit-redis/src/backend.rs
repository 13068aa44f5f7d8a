//! The store: each call of the contract is one step of the server.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{
    Attempt, DistributedLock, Grant, LockState, Release, Renewal, Ticket, Watch,
};
use lockkit_core::{
    BackendError, Capabilities, ClientId, FencingToken, LockName, Outcome, Queueing, Waiting,
    queue_window,
};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::config::RedisStoreBuilder;
use crate::connection::Link;
use crate::error::{BACKEND, fault};
use crate::keys::{self, Keys};
use crate::reply::{Reply, unreadable};
use crate::scripts::Steps;
use crate::subscriptions::Subscriptions;

/// Keeps locks in a Redis or Valkey server.
///
/// A clone is the same store, on the same connection.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_redis::RedisStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::builder().tcp("127.0.0.1", 6379).connect().await?;
/// let client = LockClient::new(store)?;
/// let guard = client.lock("orders/42")?.acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    link: Arc<Link>,
    steps: Steps,
    rules: Capabilities,
    supervisor: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // This closes the connection.
        self.supervisor.abort();
    }
}

/// What a [`RedisStore`] keeps in this process. All zero when it is not used, except for channels, which
/// stay for at most ten seconds after their last waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Tickets that hold, wait, or have an attempt without a reply.
    pub tickets: usize,
    /// Locks whose channel is subscribed.
    pub channels: usize,
}

impl RedisStore {
    /// The options of a store.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    /// Counts what is kept.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let subscriptions = &self.link().subscriptions;
        Counts {
            tickets: subscriptions.waiters.len(),
            channels: subscriptions.len(),
        }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.inner.link
    }

    pub(crate) fn steps(&self) -> &Steps {
        &self.inner.steps
    }

    async fn acquire(&self, ticket: &Ticket, number: u64) -> Result<Attempt, BackendError> {
        let Inner { link, rules, .. } = &*self.inner;
        let keys = Keys::of(&ticket.name);
        let me = ticket.holder.to_string();
        let window = queue_window(rules, ticket.ttl);
        let enqueue = match (ticket.enqueue, rules.queueing) {
            (false, _) => "0",
            (true, Queueing::Fifo) => "1",
            // It would starve if other clients queue.
            (true, _) => "2",
        };
        let channel = match rules.waiting {
            Waiting::Push => &self.link().subscriptions.channel,
            _ => "",
        };
        let reply = link
            .step(
                &self.inner.steps.acquire,
                &keys.all(&keys.gone(&me)),
                &[
                    link.token_ttl().to_string().as_str(),
                    &me,
                    &millis(ticket.ttl),
                    enqueue,
                    &millis(window),
                    &number.to_string(),
                    channel,
                ],
            )
            .await?;
        self.read_attempt(ticket, &Reply::from(reply))
    }

    fn read_attempt(&self, ticket: &Ticket, reply: &Reply) -> Result<Attempt, BackendError> {
        let wrong = || unreadable("attempt");
        let part = |at: usize| reply.as_list().get(at);
        let number = |at: usize| part(at).and_then(Reply::as_int);
        match number(0) {
            Some(1) => {
                let token = number(1).and_then(|token| u64::try_from(token).ok());
                let token = token.and_then(FencingToken::new).ok_or_else(wrong)?;
                Ok(Attempt::Granted(Grant::new(token, ticket.ttl)))
            }
            Some(0) => {
                let left = number(1).and_then(|left| u64::try_from(left).ok());
                // Also for a ticket that is not first: all before it may have died. While holders
                // renew, the lease lasts longer than any waiter pauses.
                Ok(Attempt::held_for(left.map(Duration::from_millis)))
            }
            Some(-1) => {
                let why = "the ticket was released before";
                Err(fault("attempt", Outcome::Rejected, why))
            }
            Some(-2) => {
                let kind = part(1).and_then(Reply::as_str).unwrap_or("unknown");
                Err(wrong_type("attempt", &ticket.name, kind))
            }
            _ => Err(wrong()),
        }
    }
}

impl RedisStoreBuilder {
    /// Connects.
    ///
    /// # Errors
    /// - [`BackendError`] if the server cannot be reached or refuses this user.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing stays behind.
    pub async fn connect(self) -> Result<RedisStore, BackendError> {
        let runtime = Handle::try_current()
            .map_err(|error| fault("connect", Outcome::Rejected, error.to_string()))?;
        let rules = self.capabilities();
        let channel = keys::client_channel(ClientId::random());
        let link = Arc::new(Link::new(self, Subscriptions::new(channel)));
        let supervised = Arc::clone(&link);
        let supervisor = runtime.spawn(async move { supervised.supervise().await });
        let inner = Inner {
            link,
            steps: Steps::new(),
            rules,
            supervisor: supervisor.abort_handle(),
        };
        inner.link.connection("connect").await?;
        Ok(RedisStore {
            inner: Arc::new(inner),
        })
    }
}

pub(crate) fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

pub(crate) fn wrong_type(operation: &'static str, name: &LockName, kind: &str) -> BackendError {
    let key = keys::lock(name);
    let why = format!("the key `{key}` is a {kind} and not a lock: it is left alone");
    fault(operation, Outcome::Rejected, why)
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("queueing", &self.inner.rules.queueing)
            .field("waiting", &self.inner.rules.waiting)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for RedisStore {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.rules
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let waiters = &self.link().subscriptions.waiters;
        // Before the request is written, so that a message that comes at once is kept.
        let number = waiters.attempted(ticket);
        let result = self.acquire(ticket, number).await;
        waiters.answered(ticket, number, &result);
        result
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        if self.inner.rules.waiting == Waiting::Poll {
            let why = "this store was opened with `wake=poll`";
            return Err(fault("watch", Outcome::Rejected, why));
        }
        Ok(self.link().subscriptions.watch(ticket))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        self.renew_all(tickets).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let Inner { link, steps, .. } = &*self.inner;
        let keys = Keys::of(&ticket.name);
        let me = ticket.holder.to_string();
        let known = self.link().subscriptions.waiters.forget(ticket.holder);
        // An unknown ticket was released before, and that release had no reply.
        let late = known.is_none_or(|known| known.unanswered);
        // An attempt that may still arrive is refused for as long as its hold would last.
        let refuse = millis(if late { ticket.ttl } else { Duration::ZERO });
        let reply = link
            .step(
                &steps.release,
                &keys.all(&keys.gone(&me)),
                &[&link.token_ttl().to_string(), &me, &keys.channel, &refuse],
            )
            .await?;
        match Reply::from(reply).as_int() {
            Some(1) => Ok(Release::Released),
            Some(0) => Ok(Release::NotHeld),
            _ => Err(unreadable("release")),
        }
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.inspect_name(name).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.break_name(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        self.list_prefix(prefix).await
    }

    fn resolve(&self, ticket: &Ticket) -> Ticket {
        ticket.clone()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
