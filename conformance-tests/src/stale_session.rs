//! A session store whose session was confirmed some time ago.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::clock::Moment;
use lockkit_core::contract::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, DistributedLock, HolderId, LockName};

/// Makes the moments that a session store reports older by `age`, as if its last keep-alive had been
/// acknowledged so long before.
#[derive(Debug)]
pub struct StaleSession {
    inner: Arc<dyn DistributedLock>,
    age: Duration,
}

impl StaleSession {
    /// Wraps a session store.
    #[must_use]
    pub const fn new(inner: Arc<dyn DistributedLock>, age: Duration) -> Self {
        Self { inner, age }
    }

    fn older(&self, since: Moment) -> Moment {
        let age = u64::try_from(self.age.as_nanos()).unwrap_or(u64::MAX);
        Moment::from_nanos(since.as_nanos().saturating_sub(age))
    }
}

#[async_trait]
impl DistributedLock for StaleSession {
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn address(&self) -> Option<String> {
        self.inner.address()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        Ok(match self.inner.attempt(ticket).await? {
            Attempt::Granted(grant) => Attempt::Granted(match grant.since {
                Some(since) => grant.with_since(self.older(since)),
                None => grant,
            }),
            other => other,
        })
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        self.inner.watch(ticket).await
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let answers = self.inner.renew(tickets).await.into_iter();
        let age = |answer| match answer {
            Ok(Renewal::Renewed { since, ttl }) => Ok(Renewal::Renewed {
                since: since.map(|since| self.older(since)),
                ttl,
            }),
            other => other,
        };
        answers.map(age).collect()
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.inner.release(ticket).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.inner.inspect(name).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.inner.break_lock(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        self.inner.list(prefix).await
    }

    fn forget(&self, holder: HolderId) {
        self.inner.forget(holder);
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
