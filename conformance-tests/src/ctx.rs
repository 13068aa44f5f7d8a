//! The context of a case: its namespace, its clients and its lease.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::contract::Ticket;
use lockkit_core::layers::{Faults, Faulty};
use lockkit_core::{
    Capabilities, ClientId, DistributedLock, HolderId, Lease, Lock, LockClient, LockClientBuilder,
    LockName, Queueing, TtlOf,
};

use crate::failure::{Failure, Outcome};
use crate::namespace::{Hook, Namespace, Server};
use crate::proxy::Proxy;
use crate::setup::Setup;
use crate::taker::Taker;
use crate::task::{PATIENCE, until};

/// Programs beside the suite.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Programs {
    /// A program that takes locks by URL: it calls [`taker::serve`](crate::taker::serve).
    pub taker: Option<PathBuf>,
}

/// What one run of one case works with.
#[derive(Debug)]
pub struct Ctx {
    case: String,
    namespace: Box<dyn Namespace>,
    capabilities: Capabilities,
    takes_turns: bool,
    ttl: Duration,
    programs: Programs,
}

impl Ctx {
    /// The longest that a case waits for what must come.
    pub const PATIENCE: Duration = PATIENCE;

    pub(crate) async fn new(
        setup: &dyn Setup,
        case: &str,
        alone: bool,
        programs: Programs,
    ) -> Outcome<Self> {
        Ok(Self {
            case: case.to_owned(),
            namespace: setup.namespace(alone).await?,
            capabilities: setup.capabilities(),
            takes_turns: setup.takes_turns(),
            ttl: setup.ttl(),
            programs,
        })
    }

    /// The namespace that the case runs in.
    #[must_use]
    pub fn namespace(&self) -> &dyn Namespace {
        &*self.namespace
    }

    /// The server of the namespace.
    ///
    /// # Errors
    /// - [`Failure`] if the setup has none that the case may restart or freeze.
    pub fn server(&self) -> Outcome<&dyn Server> {
        self.namespace
            .server()
            .ok_or_else(|| Hook::Restart.absent())
    }

    /// A store whose connection goes through its own proxy.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    pub async fn store_through_proxy(&self) -> Outcome<(Arc<dyn DistributedLock>, Proxy)> {
        let address = self.namespace.address();
        let proxy = Proxy::start(address.ok_or_else(|| Hook::Proxy.absent())?).await?;
        let store = self.namespace.open_at(proxy.addr()).await?;
        Ok((store, proxy))
    }

    /// What the store can do.
    #[must_use]
    pub const fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// Whether a waiter keeps out those that came later.
    #[must_use]
    pub const fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    /// The short lease of this setup.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// A fresh name.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.case, ClientId::random())
    }

    /// A store of its own connection.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    pub async fn store(&self) -> Outcome<Arc<dyn DistributedLock>> {
        self.namespace.open().await
    }

    /// Options of a client on `store`, with the short lease.
    pub fn builder(&self, store: Arc<dyn DistributedLock>) -> LockClientBuilder {
        LockClient::builder_arc(store).lease(Lease::renewed(self.ttl))
    }

    /// One more client, with a connection of its own and the short lease.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    pub async fn client(&self) -> Outcome<LockClient> {
        Ok(self.builder(self.store().await?).build()?)
    }

    /// Two clients that share nothing but the store.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    pub async fn two(&self) -> Outcome<(LockClient, LockClient)> {
        Ok((self.client().await?, self.client().await?))
    }

    /// The same fresh lock as two clients see it.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    pub async fn locks(&self) -> Outcome<(Lock, Lock)> {
        let (a, b) = self.two().await?;
        let name = self.name();
        Ok((a.lock(name.as_str())?, b.lock(name.as_str())?))
    }

    /// So many clients that share nothing but the store.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    pub async fn clients(&self, count: usize) -> Outcome<Vec<LockClient>> {
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(self.client().await?);
        }
        Ok(clients)
    }

    /// A fresh lock as each of these clients sees it.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot do the clients' lease.
    pub fn lock_of_all(&self, clients: &[LockClient]) -> Outcome<Vec<Lock>> {
        let name = self.name();
        let locks = clients.iter().map(|client| client.lock(name.as_str()));
        Ok(locks.collect::<Result<_, _>>()?)
    }

    /// A store whose requests the case can disturb, and the handle to do so.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    pub async fn faulty_store(&self) -> Outcome<(Arc<dyn DistributedLock>, Faults)> {
        self.faulty_store_from(fastrand::u64(..)).await
    }

    /// The same, with random faults that follow from `seed`.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    pub async fn faulty_store_from(
        &self,
        seed: u64,
    ) -> Outcome<(Arc<dyn DistributedLock>, Faults)> {
        let store = Faulty::new(self.store().await?, seed);
        let faults = store.faults();
        Ok((Arc::new(store), faults))
    }

    /// A client whose requests the case can disturb.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    pub async fn faulty(&self) -> Outcome<(LockClient, Faults)> {
        let (store, faults) = self.faulty_store().await?;
        Ok((self.builder(store).build()?, faults))
    }

    /// The same, but a request may take 400 ms only. A busy machine can take as long, so that a try or a release that
    /// fails proves nothing.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    pub async fn faulty_impatient(&self) -> Outcome<(LockClient, Faults)> {
        let (store, faults) = self.faulty_store().await?;
        let client = self.builder(store).timeout(Duration::from_millis(400));
        Ok((client.build()?, faults))
    }

    /// A ticket of a new client, with the short lease, for calls to a store without a client above it.
    ///
    /// # Errors
    /// - [`Failure`] if `name` cannot name a lock.
    pub fn ticket(&self, name: &str) -> Outcome<Ticket> {
        let holder = HolderId::new(ClientId::random(), 1);
        Ok(Ticket::new(LockName::new(name)?, holder, self.ttl))
    }

    /// Waits until `count` clients wait for the lock; where waiters have no order and the store does not know, a
    /// moment.
    ///
    /// # Errors
    /// - [`Failure`] if they do not come.
    pub async fn queued(&self, lock: &Lock, count: u32) -> Outcome {
        until("the waiters stand in the queue", async || {
            Ok(match waiter_count(lock).await? {
                Some(waiters) => waiters >= count,
                None if self.capabilities.queueing == Queueing::Fifo => false,
                None => {
                    // There is no event for their requests. Later ones of the same client take as long on a busy machine.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    for _ in 0..5 {
                        lock.inspect().await?;
                    }
                    true
                }
            })
        })
        .await
    }

    /// Waits until exactly `count` clients wait for the lock, where waiters have an order.
    ///
    /// # Errors
    /// - [`Failure`] if more or fewer wait.
    pub async fn queued_exactly(&self, lock: &Lock, count: u32) -> Outcome {
        let exactly = async || Ok(waiter_count(lock).await? == Some(count));
        until("so many wait and no more", exactly).await
    }

    /// `wished`, or the longest fixed lease that the store does if that is shorter.
    #[must_use]
    pub fn longest(&self, wished: Duration) -> Duration {
        match self.capabilities.ttl_of {
            // The client alone ends a fixed lease there.
            TtlOf::PerSession => wished,
            _ => wished.min(self.capabilities.max_ttl),
        }
    }

    /// `wished`, or the nearest renewed lease that the store does.
    #[must_use]
    pub fn renewable(&self, wished: Duration) -> Duration {
        let Capabilities {
            min_ttl, max_ttl, ..
        } = self.capabilities;
        wished.clamp(min_ttl, max_ttl)
    }

    /// A renewed lease of 30 seconds, or the nearest that the store does. A waiter that is not woken attempts late, and
    /// a machine that is busy for a moment loses nothing.
    #[must_use]
    pub fn long(&self) -> Lease {
        Lease::renewed(self.renewable(Duration::from_secs(30)))
    }

    /// The longest time until the store frees a hold that is not renewed.
    #[must_use]
    pub fn freed_after(&self) -> Duration {
        self.ttl + self.ttl / 2 + self.capabilities.poll.max
    }

    /// Starts a process that takes locks of this store.
    ///
    /// # Errors
    /// - [`Failure`] if the setup has no URL or the program cannot be started.
    pub async fn taker(&self) -> Outcome<Taker> {
        let missing = || Failure::new("the case should have been skipped: no URL or no lock-taker");
        let program: PathBuf = self.programs.taker.clone().ok_or_else(missing)?;
        let url = self.namespace.url().ok_or_else(missing)?;
        Taker::start(&program, &url, self.ttl).await
    }
}

/// How many clients wait for the lock, if the store knows.
pub(crate) async fn waiter_count(lock: &Lock) -> Outcome<Option<u32>> {
    let state = lock.inspect().await?;
    Ok(state.and_then(|state| state.waiters))
}
