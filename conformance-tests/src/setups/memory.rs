//! The store in memory, as each kind of store that it can play.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::memory::{MemoryStore, MemoryStoreBuilder};
use lockkit_core::{Capabilities, DistributedLock, LockName, PollRange, Queueing, TtlOf, Waiting};

use crate::failure::{Failure, Outcome};
use crate::namespace::{Hook, Namespace};
use crate::setup::Setup;

/// What the store in memory plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Leases,
    Sessions,
    Barging,
    Poll,
}

/// Opens a [`MemoryStore`] for each case.
#[derive(Clone, Copy, Debug)]
pub struct MemorySetup {
    name: &'static str,
    kind: Kind,
}

impl MemorySetup {
    const SESSION: Duration = Duration::from_secs(3);

    const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind }
    }

    /// A lease for each hold, a fair queue, wake-ups: `memory`.
    #[must_use]
    pub const fn leases() -> Self {
        Self::new("memory", Kind::Leases)
    }

    /// All holds of a client on its session, losses told: `memory-sessions`.
    #[must_use]
    pub const fn sessions() -> Self {
        Self::new("memory-sessions", Kind::Sessions)
    }

    /// Wake-ups, but no order among waiters: `memory-barging`.
    #[must_use]
    pub const fn barging() -> Self {
        Self::new("memory-barging", Kind::Barging)
    }

    /// Neither order nor wake-ups: `memory-poll`.
    #[must_use]
    pub const fn poll() -> Self {
        Self::new("memory-poll", Kind::Poll)
    }

    fn builder(self) -> MemoryStoreBuilder {
        let builder = MemoryStore::builder();
        match self.kind {
            Kind::Leases => builder,
            Kind::Sessions => builder.sessions(Self::SESSION),
            Kind::Barging => builder.queueing(Queueing::Barging),
            Kind::Poll => builder
                .queueing(Queueing::Barging)
                .waiting(Waiting::Poll)
                .poll(PollRange::new(
                    Duration::from_millis(2),
                    Duration::from_millis(100),
                )),
        }
    }
}

#[async_trait]
impl Setup for MemorySetup {
    fn name(&self) -> &str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.builder().build().capabilities()
    }

    fn hooks(&self) -> &[Hook] {
        match self.kind {
            Kind::Poll => &[Hook::Wipe, Hook::Residue],
            Kind::Sessions => &[
                Hook::Wipe,
                Hook::Residue,
                Hook::LosePushes,
                Hook::ExpireSession,
            ],
            Kind::Leases | Kind::Barging => &[Hook::Wipe, Hook::Residue, Hook::LosePushes],
        }
    }

    async fn namespace(&self, _alone: bool) -> Outcome<Box<dyn Namespace>> {
        Ok(Box::new(MemoryNamespace(self.builder().build())))
    }
}

#[derive(Debug)]
struct MemoryNamespace(MemoryStore);

#[async_trait]
impl Namespace for MemoryNamespace {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        Ok(Arc::new(self.0.connect()))
    }

    async fn wipe(&self) -> Outcome {
        self.0.wipe();
        Ok(())
    }

    async fn expire_session(&self, store: &dyn DistributedLock) -> Outcome {
        let store: Option<&MemoryStore> = store.as_any().downcast_ref();
        store
            .filter(|store| store.capabilities().ttl_of == TtlOf::PerSession)
            .ok_or_else(|| Failure::new("that store has no session"))?
            .expire_session();
        Ok(())
    }

    async fn lose_pushes(&self, lose: bool) -> Outcome {
        self.0.lose_pushes(lose);
        Ok(())
    }

    async fn residue(&self, _name: &LockName) -> Outcome<Vec<String>> {
        // Each case has a store of its own, so whatever there is belongs to the name.
        let counts = self.0.counts();
        let kept = [
            ("holds", counts.holds),
            ("waiters", counts.waiters),
            ("watches", counts.watches),
        ];
        let left = kept.iter().filter(|(_, count)| *count > 0);
        Ok(left
            .map(|(what, count)| format!("{count} {what}"))
            .collect())
    }
}
