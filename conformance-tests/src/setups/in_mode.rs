//! A setup whose tickets all have one mode, so that a writer and the only permit pass every case of a lock.

use std::any::Any;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{Attempt, LockState, Mode, Release, Renewal, Ticket, Watch};
use lockkit_core::{BackendError, Capabilities, DistributedLock, HolderId, LockName};

use crate::failure::Outcome;
use crate::namespace::{Hook, Namespace, Server};
use crate::setup::Setup;

/// Another setup, with tickets of one mode that excludes all others.
#[derive(Debug)]
pub struct InMode<S> {
    setup: S,
    name: String,
    mode: Mode,
    /// Those of the setup, without those of programs that know nothing of the mode.
    hooks: Vec<Hook>,
}

impl<S: Setup> InMode<S> {
    /// Every ticket is a writer: `redis-write`.
    #[must_use]
    pub fn write(setup: S) -> Self {
        Self::new(setup, "write", Mode::Write)
    }

    /// Every ticket asks for the only permit: `redis-permit`.
    #[must_use]
    pub fn permit(setup: S) -> Self {
        let of = NonZeroU32::MIN;
        Self::new(setup, "permit", Mode::Permit { of })
    }

    fn new(setup: S, word: &str, mode: Mode) -> Self {
        let mut hooks = setup.hooks().to_vec();
        hooks.retain(|hook| *hook != Hook::Url);
        Self {
            name: format!("{}-{word}", setup.name()),
            setup,
            mode,
            hooks,
        }
    }
}

#[async_trait]
impl<S: Setup> Setup for InMode<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        exclusive(self.setup.capabilities())
    }

    fn hooks(&self) -> &[Hook] {
        &self.hooks
    }

    fn missing(&self) -> Option<String> {
        self.setup.missing()
    }

    fn skips(&self, case: &str) -> Option<String> {
        self.setup.skips(case)
    }

    fn is_one_of_all(&self) -> bool {
        self.setup.is_one_of_all()
    }

    fn takes_turns(&self) -> bool {
        self.setup.takes_turns()
    }

    fn ttl(&self) -> Duration {
        self.setup.ttl()
    }

    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>> {
        let namespace = self.setup.namespace(alone).await?;
        let mode = self.mode;
        Ok(Box::new(NamespaceInMode { namespace, mode }))
    }
}

/// Cases choose exclusive locks alone: the mode is chosen below them.
const fn exclusive(capabilities: Capabilities) -> Capabilities {
    Capabilities {
        shares: false,
        ..capabilities
    }
}

#[derive(Debug)]
struct NamespaceInMode {
    namespace: Box<dyn Namespace>,
    mode: Mode,
}

impl NamespaceInMode {
    fn over(&self, inner: Arc<dyn DistributedLock>) -> Arc<dyn DistributedLock> {
        let mode = self.mode;
        Arc::new(StoreInMode { inner, mode })
    }
}

#[async_trait]
impl Namespace for NamespaceInMode {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        Ok(self.over(self.namespace.open().await?))
    }

    async fn wipe(&self) -> Outcome {
        self.namespace.wipe().await
    }

    fn server(&self) -> Option<&dyn Server> {
        self.namespace.server()
    }

    fn address(&self) -> Option<SocketAddr> {
        self.namespace.address()
    }

    async fn open_at(&self, address: SocketAddr) -> Outcome<Arc<dyn DistributedLock>> {
        Ok(self.over(self.namespace.open_at(address).await?))
    }

    async fn expire_session(&self, store: &dyn DistributedLock) -> Outcome {
        self.namespace.expire_session(store).await
    }

    async fn lose_pushes(&self, lose: bool) -> Outcome {
        self.namespace.lose_pushes(lose).await
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        self.namespace.residue(name).await
    }
}

#[derive(Debug)]
struct StoreInMode {
    inner: Arc<dyn DistributedLock>,
    mode: Mode,
}

impl StoreInMode {
    fn ticket(&self, ticket: &Ticket) -> Ticket {
        ticket.clone().with_mode(self.mode)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for StoreInMode {
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn address(&self) -> Option<String> {
        self.inner.address()
    }

    fn capabilities(&self) -> Capabilities {
        exclusive(self.inner.capabilities())
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.inner.attempt(&self.ticket(ticket)).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        self.inner.watch(&self.ticket(ticket)).await
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let tickets: Vec<_> = tickets.iter().map(|ticket| self.ticket(ticket)).collect();
        self.inner.renew(&tickets).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.inner.release(&self.ticket(ticket)).await
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

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool, BackendError> {
        self.inner.note(&self.ticket(ticket), text).await
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.inner.adopt(from, &self.ticket(ticket)).await
    }

    fn forget(&self, holder: HolderId) {
        self.inner.forget(holder);
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
