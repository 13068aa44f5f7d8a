//! Making a client: its options and its start.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Handle;

use crate::client::handle::LockClient;
use crate::client::keeper::Keeper;
use crate::client::queue::Table;
use crate::client::reaper::{Reaper, Reaping};
use crate::client::runtime::Runtime;
use crate::client::shared::Core;
use crate::contract::DistributedLock;
use crate::contract::capability::Capabilities;
use crate::contract::error::{Error, Result};
use crate::contract::holder::ClientId;
use crate::mutants::Broken;
#[cfg(feature = "mutants")]
use crate::mutants::Mutant;
use crate::time::clock::{BootClock, Clock};
use crate::time::lease::Lease;

/// What is longer is cut to this, so that no sum of times overflows: thirty years.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Options of a [`LockClient`].
#[derive(Debug)]
#[must_use]
pub struct LockClientBuilder {
    store: Arc<dyn DistributedLock>,
    lease: Option<Lease>,
    max_hold: Option<Duration>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
    outage: Duration,
    runtime: Option<Handle>,
    seed: Option<u64>,
    broken: Broken,
}

impl LockClientBuilder {
    pub(crate) fn new(store: Arc<dyn DistributedLock>) -> Self {
        Self {
            store,
            lease: None,
            max_hold: None,
            clock: Arc::new(BootClock),
            timeout: Duration::from_secs(2),
            outage: Duration::from_secs(30),
            runtime: None,
            seed: None,
            broken: Broken::default(),
        }
    }

    /// The lease of locks that set none. By default renewed, 30 seconds, or the nearest that the
    /// store can do.
    pub const fn lease(mut self, lease: Lease) -> Self {
        self.lease = Some(lease);
        self
    }

    /// The longest hold time of locks that set none. By default there is none.
    pub const fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// The clock of deadlines. By default [`BootClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The longest that one request to the store may take. By default 2 seconds; not zero.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// After how long a failing store is given up by an acquire without a limit. By default 30 seconds.
    pub const fn outage(mut self, outage: Duration) -> Self {
        self.outage = outage;
        self
    }

    /// The runtime for the client's tasks. By default the one that [`build`](Self::build) is called in.
    pub fn runtime(mut self, handle: Handle) -> Self {
        self.runtime = Some(handle);
        self
    }

    /// Makes all random pauses follow from `seed`, for tests that must repeat.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Breaks a promise, to test the conformance suite.
    #[cfg(feature = "mutants")]
    pub const fn mutant(mut self, mutant: Mutant) -> Self {
        self.broken.promise = Some(mutant);
        self
    }

    /// Makes the client and starts its tasks.
    ///
    /// # Errors
    /// - [`Error::NoRuntime`] if there is no runtime, or its time is not enabled.
    /// - [`Error::Unsupported`] if the store cannot honour the lease.
    /// - [`Error::InvalidOption`] if the request timeout is zero.
    pub fn build(self) -> Result<LockClient> {
        let handle = match self.runtime {
            Some(handle) => handle,
            None => Handle::try_current().map_err(|_| Error::NoRuntime)?,
        };
        if !has_time(&handle) {
            return Err(Error::NoRuntime);
        }
        if self.timeout.is_zero() {
            let what = "a request timeout of zero: no store could answer in time".into();
            return Err(Error::InvalidOption { what });
        }
        let timeout = self.timeout.min(LONGEST);
        let capabilities = self.store.capabilities();
        let runtime = Runtime::new(handle);
        let mut random = self.seed.map_or_else(Rng::new, Rng::with_seed);
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        let reaping = Reaping::new(store, clock, timeout, random.fork());
        let core = Arc::new(Core {
            id: ClientId::random(),
            lease: self
                .lease
                .unwrap_or_else(|| nearest(Lease::default(), &capabilities)),
            max_hold: self.max_hold.filter(|limit| !limit.is_zero()),
            timeout,
            outage: self.outage.min(LONGEST),
            clock: self.clock,
            keeper: Arc::new(Keeper::new()),
            reaper: Reaper::new(reaping, runtime.clone()),
            runtime,
            table: Table::default(),
            owners: Arc::default(),
            random: Mutex::new(random),
            ids: AtomicU64::new(0),
            tickets: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            broken: self.broken,
            store: self.store,
            capabilities,
        });
        core.can_lease(core.lease)?;
        drop(
            core.runtime
                .spawn(Arc::clone(&core.keeper).run(Arc::clone(&core.clock))),
        );
        Ok(LockClient { core })
    }
}

/// Whether timers work in a runtime. Tokio gives no other way to ask.
fn has_time(runtime: &Handle) -> bool {
    let _entered = runtime.enter();
    std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

/// A renewed lease that the store can do.
fn nearest(lease: Lease, capabilities: &Capabilities) -> Lease {
    Lease::renewed(
        lease
            .ttl()
            .clamp(capabilities.min_ttl, capabilities.max_ttl),
    )
}
