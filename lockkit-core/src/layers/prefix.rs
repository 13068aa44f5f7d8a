//! A key space of its own for each application.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;

use crate::contract::{
    Attempt, BackendError, Capabilities, DistributedLock, HolderId, InvalidName, LockName,
    LockState, Outcome, Release, Renewal, Ticket, Watch,
};

/// Puts a prefix before every name on its way to the store, and takes it off on the way back.
///
/// A name that has more than [`LockName::MAX_LEN`] bytes with the prefix is
/// [`Rejected`](Outcome::Rejected). An empty prefix changes nothing.
///
/// # Cost
/// One allocation for each call.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use lockkit_core::memory::MemoryStore;
/// use lockkit_core::layers::Prefixed;
///
/// let store = Prefixed::new(Arc::new(MemoryStore::new()), "shop:")?;
/// # let _ = store;
/// # Ok::<(), lockkit_core::InvalidName>(())
/// ```
#[derive(Clone, Debug)]
pub struct Prefixed {
    inner: Arc<dyn DistributedLock>,
    prefix: Arc<str>,
}

impl Prefixed {
    /// Wraps `inner`.
    ///
    /// # Errors
    /// - [`InvalidName::Nul`] if the prefix has a NUL byte.
    /// - [`InvalidName::TooLong`] if it leaves no room for a name.
    pub fn new(
        inner: Arc<dyn DistributedLock>,
        prefix: impl Into<Arc<str>>,
    ) -> Result<Self, InvalidName> {
        let prefix = prefix.into();
        if prefix.contains('\0') {
            return Err(InvalidName::Nul);
        }
        if prefix.len() >= LockName::MAX_LEN {
            return Err(InvalidName::TooLong { len: prefix.len() });
        }
        Ok(Self { inner, prefix })
    }

    /// The prefix.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn name(&self, name: &LockName, operation: &'static str) -> Result<LockName, BackendError> {
        LockName::new(format!("{}{name}", self.prefix)).map_err(|_| {
            let why = format!(
                "the name has {} bytes with the prefix `{}`: at most {} are possible",
                self.prefix.len() + name.as_str().len(),
                self.prefix,
                LockName::MAX_LEN,
            );
            BackendError::new(self.backend(), operation, Outcome::Rejected, why)
        })
    }

    fn ticket(&self, ticket: &Ticket, operation: &'static str) -> Result<Ticket, BackendError> {
        Ok(ticket
            .clone()
            .with_name(self.name(&ticket.name, operation)?))
    }

    /// The state under the name that the caller knows; `None` for a name that is only the prefix,
    /// which cannot have been locked through this decorator.
    fn strip(&self, mut state: LockState) -> Option<LockState> {
        let name = state.name.as_str().strip_prefix(&*self.prefix)?;
        state.name = LockName::new(name).ok()?;
        Some(state)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Prefixed {
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
        self.inner.attempt(&self.ticket(ticket, "attempt")?).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        self.inner.watch(&self.ticket(ticket, "watch")?).await
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let mut inside = Vec::with_capacity(tickets.len());
        let checked: Vec<Result<(), BackendError>> = tickets
            .iter()
            .map(|ticket| self.ticket(ticket, "renew").map(|it| inside.push(it)))
            .collect();
        let mut answers = self.inner.renew(&inside).await.into_iter();
        let answer = |checked: Result<(), BackendError>| match checked {
            Ok(()) => answers.next(),
            Err(error) => Some(Err(error)),
        };
        checked.into_iter().filter_map(answer).collect()
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.inner.release(&self.ticket(ticket, "release")?).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let state = self.inner.inspect(&self.name(name, "inspect")?).await?;
        Ok(state.and_then(|state| self.strip(state)))
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let name = self.name(name, "break_lock")?;
        let state = self.inner.break_lock(&name).await?;
        Ok(state.and_then(|state| self.strip(state)))
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let states = self.inner.list(&format!("{}{prefix}", self.prefix)).await?;
        let states = states.into_iter();
        Ok(states.filter_map(|state| self.strip(state)).collect())
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool, BackendError> {
        self.inner.note(&self.ticket(ticket, "note")?, text).await
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.inner.adopt(from, &self.ticket(ticket, "adopt")?).await
    }

    /// A ticket whose name is too long with the prefix never holds, and stays as it is.
    fn resolve(&self, ticket: &Ticket) -> Ticket {
        let inside = self.ticket(ticket, "resolve");
        self.inner.resolve(inside.as_ref().unwrap_or(ticket))
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
