//! A key space of its own for each application.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;

use crate::contract::capability::Capabilities;
use crate::contract::error::{BackendError, Outcome};
use crate::contract::name::{InvalidName, LockName};
use crate::contract::{Attempt, DistributedLock, LockState, Release, Renewal, Ticket, Watch};

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
        let name = self.name(&ticket.name, operation)?;
        Ok(Ticket {
            name,
            ..ticket.clone()
        })
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
        let refused: Vec<Option<BackendError>> = tickets
            .iter()
            .map(|ticket| match self.ticket(ticket, "renew") {
                Ok(ticket) => {
                    inside.push(ticket);
                    None
                }
                Err(error) => Some(error),
            })
            .collect();
        let mut answers = self.inner.renew(&inside).await.into_iter();
        let answer = |error| match error {
            Some(error) => Some(Err(error)),
            None => answers.next(),
        };
        refused.into_iter().filter_map(answer).collect()
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

    /// A ticket whose name is too long with the prefix never holds, and stays as it is.
    fn resolve(&self, ticket: &Ticket) -> Ticket {
        let inside = self.ticket(ticket, "resolve");
        self.inner.resolve(inside.as_ref().unwrap_or(ticket))
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::contract::holder::{ClientId, HolderId};
    use crate::stores::memory::MemoryStore;

    fn name(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    fn ticket(text: &str) -> Ticket {
        let holder = HolderId::new(ClientId::random(), 1);
        Ticket::new(name(text), holder, Duration::from_secs(30))
    }

    fn stores() -> (MemoryStore, Prefixed) {
        let memory = MemoryStore::new();
        let store = Prefixed::new(Arc::new(memory.clone()), "shop:").unwrap();
        (memory, store)
    }

    #[tokio::test]
    async fn names_have_the_prefix_inside_and_not_outside() {
        let (memory, store) = stores();
        let ticket = ticket("a");
        memory.attempt(&ticket).await.unwrap();
        let mine = Ticket {
            holder: HolderId::new(ClientId::random(), 2),
            ..ticket
        };
        assert!(matches!(
            store.attempt(&mine).await,
            Ok(Attempt::Granted(_))
        ));
        assert_eq!(store.resolve(&mine).name, name("shop:a"));
        let inside = memory.inspect(&name("shop:a")).await.unwrap().unwrap();
        assert_eq!(inside.holders, [mine.holder.to_string()]);
        assert_eq!(store.list("b").await.unwrap(), []);
        let listed = store.list("a").await.unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].name, name("a"));
        let seen = store.inspect(&name("a")).await.unwrap().unwrap();
        assert_eq!(seen.name, name("a"));
        let broken = store.break_lock(&name("a")).await.unwrap().unwrap();
        assert_eq!(broken.holders, [mine.holder.to_string()]);
        assert!(matches!(store.release(&mine).await, Ok(Release::NotHeld)));
        assert_eq!(memory.counts().holds, 1);
    }

    #[tokio::test]
    async fn a_name_that_grows_too_long_is_rejected_alone() {
        let (_, store) = stores();
        let long = ticket(&"x".repeat(508));
        let error = store.attempt(&long).await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Rejected);
        let why = std::error::Error::source(&error).unwrap().to_string();
        assert!(why.contains("513 bytes") && why.contains("shop:"), "{why}");
        let short = ticket("a");
        store.attempt(&short).await.unwrap();
        let answers = store.renew(&[long.clone(), short, long.clone()]).await;
        assert!(answers[0].is_err() && answers[2].is_err());
        assert!(matches!(answers[1], Ok(Renewal::Renewed { .. })));
        assert_eq!(store.resolve(&long), long);
    }

    #[test]
    fn a_prefix_that_no_name_fits_behind_is_refused() {
        let inner: Arc<dyn DistributedLock> = Arc::new(MemoryStore::new());
        let prefixed = |prefix: String| Prefixed::new(Arc::clone(&inner), prefix).map(|_| ());
        assert_eq!(prefixed(String::new()), Ok(()));
        assert_eq!(prefixed("x".repeat(511)), Ok(()));
        assert_eq!(
            prefixed("x".repeat(512)),
            Err(InvalidName::TooLong { len: 512 })
        );
        assert_eq!(prefixed("\0".to_owned()), Err(InvalidName::Nul));
        let store = Prefixed::new(inner, "a").unwrap();
        assert!(store.as_any().is::<MemoryStore>());
    }
}
