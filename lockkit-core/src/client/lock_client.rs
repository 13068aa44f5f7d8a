//! The client of one store, and how it is made.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::client::context::Context;
use crate::client::election::Election;
use crate::client::hold::HoldOptions;
use crate::client::label;
use crate::client::lock::Lock;
use crate::client::outstanding::Pending;
use crate::client::owner::Owner;
use crate::client::reaper::IN_FLIGHT as RELEASES_IN_FLIGHT;
use crate::client::renewal::{self, PARTS_IN_FLIGHT, stop};
use crate::client::runtime::{Runtime, has_time};
use crate::client::rw_lock::RwLock;
use crate::client::shared::Shared;
use crate::contract::{
    Capabilities, ClientId, DistributedLock, Error, LockName, LockState, LossReason, Mode, Result,
};
use crate::time::clock::{BootClock, Clock};
use crate::time::lease::Lease;
use crate::url::{InvalidUrl, Options};

/// The longest that one request may take.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
/// What is longer is cut to this, so that no sum of times overflows: thirty years.
const LONGEST: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The client of one store. Cheap to clone; all clones share one task that renews.
///
/// Made inside a Tokio runtime, which carries out all requests to the store. It may be used from other
/// runtimes too, which may end or stand still at any moment. When its own runtime stops, every hold is
/// lost at once.
///
/// A client belongs to one process: after a `fork` or when a snapshot of a process is started twice,
/// make a new one in each. Two copies would have one identity, and the store would take them for one.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
/// use lockkit_core::{LockClient, memory::MemoryStore};
///
/// let client = LockClient::new(MemoryStore::new())?;
/// let guard = client.lock("nightly")?.acquire().await?;
/// println!("write with token {}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LockClient {
    pub(crate) shared: Arc<Shared>,
}

impl LockClient {
    /// Makes a client with the default options of [`LockClientBuilder`].
    ///
    /// # Errors
    /// - [`Error::NoRuntime`] if it is called outside a Tokio runtime, or in one whose time is not enabled.
    pub fn new(store: impl DistributedLock) -> Result<Self> {
        Self::builder(store).build()
    }

    /// Sets options before making a client.
    pub fn builder(store: impl DistributedLock) -> LockClientBuilder {
        Self::builder_arc(Arc::new(store))
    }

    /// As [`builder`](Self::builder), for a store that is shared already.
    pub fn builder_arc(store: Arc<dyn DistributedLock>) -> LockClientBuilder {
        let settings = ClientSettings::default();
        LockClientBuilder { store, settings }
    }

    /// The lock called `name`: a text, or a [`LockName`]. Nothing is sent.
    ///
    /// # Errors
    /// - [`Error::InvalidName`] if the text cannot name a lock.
    /// - [`Error::InvalidOption`] if it is too long with the client's prefix.
    pub fn lock(&self, name: impl AsRef<str>) -> Result<Lock> {
        self.lock_in(name.as_ref(), Mode::Exclusive)
    }

    /// The readers-writer lock called `name`. Nothing is sent.
    ///
    /// A name has one queue, whatever the modes: [`lock`](Self::lock) of the same name excludes readers and
    /// writers.
    ///
    /// # Errors
    /// - [`Error::InvalidName`] and [`Error::InvalidOption`] as in [`lock`](Self::lock).
    /// - [`Error::Unsupported`] if the store has exclusive locks only.
    pub fn rw_lock(&self, name: impl AsRef<str>) -> Result<RwLock> {
        let name = name.as_ref();
        let read = self.lock_in(name, Mode::Read)?;
        Ok(RwLock::new(read, self.lock_in(name, Mode::Write)?))
    }

    /// The semaphore called `name`: a lock that as many as `permits` may hold at once. Nothing is sent.
    ///
    /// The number is not stored. While clients differ, no more hold than the largest number among them, and
    /// one with a smaller number waits for its own. [`lock`](Self::lock) of the same name waits until all
    /// permits are back.
    ///
    /// Permits limit load. They are no fence: each has a token, but several holders are right at once, so
    /// that a resource cannot tell a late one. Where a limit must never be passed, lock one of as many names
    /// instead.
    ///
    /// # Errors
    /// - [`Error::InvalidName`] and [`Error::InvalidOption`] as in [`lock`](Self::lock).
    /// - [`Error::InvalidOption`] if `permits` is zero.
    /// - [`Error::Unsupported`] if the store has exclusive locks only.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
    /// use lockkit_core::{LockClient, memory::MemoryStore};
    ///
    /// let client = LockClient::new(MemoryStore::new())?;
    /// let importers = client.semaphore("import", 2)?;
    /// let (_one, _other) = (importers.acquire().await?, importers.acquire().await?);
    /// assert!(importers.try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Result<Lock> {
        let Some(of) = NonZeroU32::new(permits) else {
            return Err(Error::invalid("a semaphore needs at least one permit"));
        };
        self.lock_in(name.as_ref(), Mode::Permit { of })
    }

    /// The election called `name`: an exclusive lock whose holder says who it is. Nothing is sent.
    ///
    /// # Errors
    /// - [`Error::InvalidName`] and [`Error::InvalidOption`] as in [`lock`](Self::lock).
    /// - [`Error::Unsupported`] if the store keeps no notes.
    pub fn election(&self, name: impl AsRef<str>) -> Result<Election> {
        self.shared.context.check_notes()?;
        Ok(Election::new(self.lock(name)?))
    }

    fn lock_in(&self, name: &str, mode: Mode) -> Result<Lock> {
        Lock::new(&self.shared, LockName::new(name)?, mode)
    }

    /// Makes an owner, which can re-enter what it holds.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner {
            client: self.shared.context.id,
            id: self.shared.next_id(),
        }
    }

    /// The identity of this client in the store.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.shared.context.id
    }

    /// The store, with its decorators.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn DistributedLock> {
        &self.shared.context.store
    }

    /// The innermost store, if it is an `S`: the way to what only that store can do.
    #[must_use]
    pub fn store<S: DistributedLock>(&self) -> Option<&S> {
        self.shared.context.store.as_any().downcast_ref()
    }

    /// Lists the locks whose names begin with `prefix` and that are held or waited for.
    ///
    /// # Errors
    /// - [`Error::Backend`] if the store failed.
    /// - [`Error::NoRuntime`] if it is polled outside a Tokio runtime, [`Error::Shutdown`] if the client's has stopped.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let context = &self.shared.context;
        let prefix = format!("{}{prefix}", context.prefix);
        let listed = context.request("list", |store| async move { store.list(&prefix).await });
        let mut states = listed.await?;
        // What has only the prefix as its name was locked without it.
        states.retain(|state| state.name.as_str().len() > context.prefix.len());
        for state in &mut states {
            state.name = context.shown(&state.name);
        }
        Ok(states)
    }

    /// Waits until everything that was dropped is released at the store.
    ///
    /// It takes as long as the store takes to respond, at most until the leases have ended. If a lock ends only with its
    /// session or process, `drain` waits until the store responds. A hold with
    /// a [shortest hold time](crate::Lock::with_min_hold) is finished when its lease lasts until then;
    /// if the lock ends with its session or its process, when that time has passed.
    pub async fn drain(&self) {
        self.shared.context.pending.none().await;
    }

    /// Closes the client: refuses new acquires and fails those that wait; after `grace` ends what is
    /// still held, with [`LossReason::Shutdown`]; releases everything and stops renewing. The grace is
    /// for what [`drain`](Self::drain) waits for, too.
    ///
    /// # Errors
    /// - [`Error::Backend`] if releases got no response within one request timeout. Their leases
    ///   end them.
    /// - [`Error::NoRuntime`] if it is polled outside a Tokio runtime, or in one whose time is not enabled. The client
    ///   is closed.
    ///
    /// # Cancel safety
    /// The client stays closed; call it again to finish.
    pub async fn shutdown(&self, grace: Duration) -> Result<()> {
        let (shared, context) = (&self.shared, &self.shared.context);
        shared.queues.close();
        if !context.runtime.has_time_here() {
            return Err(Error::NoRuntime);
        }
        // What is still held after the grace is lost now.
        let finished = async {
            shared.queues.nothing_held().await;
            context.pending.none().await;
        };
        let _ = timeout(grace, finished).await;
        stop(&shared.schedule, LossReason::Shutdown);
        // Attempts first: what they bring is pending then.
        let settled = async {
            context.attempts.none().await;
            context.pending.none().await;
            Ok(())
        };
        Ok(context.bounded("release", settled).await?)
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

/// The options of a client; each has its default if it is not set.
#[derive(Clone, Debug, Default)]
#[doc(hidden)]
#[non_exhaustive]
pub struct ClientSettings {
    pub lease: Option<Lease>,
    pub label: Option<String>,
    pub program: Option<String>,
    pub prefix: Option<String>,
    pub max_hold: Option<Duration>,
    pub clock: Option<Arc<dyn Clock>>,
    pub timeout: Option<Duration>,
    pub outage: Option<Duration>,
}

impl ClientSettings {
    /// The value of `outage` if it is not given.
    pub const DEFAULT_OUTAGE: Duration = Duration::from_secs(30);

    /// Takes the options of the client out of those of a URL; what is set already takes precedence.
    ///
    /// # Errors
    /// - [`InvalidUrl`] if one is not a duration, or one that must not be is zero.
    pub fn or_from_url(self, options: &mut Options) -> Result<Self, InvalidUrl> {
        let ttl = options.positive_duration("ttl")?;
        let prefix = options.text("prefix").filter(|prefix| !prefix.is_empty());
        Ok(Self {
            lease: self.lease.or(ttl.map(Lease::renewed)),
            label: self.label.or(options.text("label")),
            prefix: self.prefix.or(prefix),
            timeout: self.timeout.or(options.positive_duration("timeout")?),
            outage: self.outage.or(options.duration("outage")?),
            max_hold: self.max_hold.or(options.positive_duration("max_hold")?),
            ..self
        })
    }
}

/// Options of a [`LockClient`].
#[derive(Debug)]
#[must_use]
pub struct LockClientBuilder {
    store: Arc<dyn DistributedLock>,
    settings: ClientSettings,
}

impl LockClientBuilder {
    /// All options at once.
    #[doc(hidden)]
    pub fn with(mut self, settings: ClientSettings) -> Self {
        self.settings = settings;
        self
    }

    /// The lease of locks that set none. By default renewed, 30 seconds, or the nearest that the
    /// store can do.
    pub const fn lease(mut self, lease: Lease) -> Self {
        self.settings.lease = Some(lease);
        self
    }

    /// What operators read of this client's holds. By default `host:pid program`; an empty label is none.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.settings.label = Some(label.into());
        self
    }

    /// The program in the default label. By default the name of this one.
    pub fn program(mut self, name: impl Into<String>) -> Self {
        self.settings.program = Some(name.into());
        self
    }

    /// The prefix of every name of this client, so that applications can share a store. By default nothing.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.settings.prefix = Some(prefix.into());
        self
    }

    /// The longest hold time of locks that set none. By default there is none; not zero.
    pub const fn max_hold(mut self, limit: Duration) -> Self {
        self.settings.max_hold = Some(limit);
        self
    }

    /// The clock of deadlines. By default [`BootClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.settings.clock = Some(clock);
        self
    }

    /// The longest that one request to the store may take. By default 2 seconds; not zero.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = Some(timeout);
        self
    }

    /// How long an acquire without a limit retries while the store fails. By default 30 seconds.
    pub const fn outage(mut self, outage: Duration) -> Self {
        self.settings.outage = Some(outage);
        self
    }

    /// Makes the client and starts its renewal task, in the runtime that it is called in.
    ///
    /// # Errors
    /// - [`Error::NoRuntime`] if there is none, or its time is not enabled.
    /// - [`Error::Unsupported`] if the store cannot honour the lease.
    /// - [`Error::InvalidOption`] if the request timeout or the longest hold time is zero, or the label has more than
    ///   128 bytes or a control character.
    /// - [`Error::InvalidName`] if the prefix has a NUL byte, or leaves no room for a name.
    pub fn build(self) -> Result<LockClient> {
        let settings = self.settings;
        let handle = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        if !has_time(&handle) {
            return Err(Error::NoRuntime);
        }
        let timeout = settings.timeout.unwrap_or(DEFAULT_TIMEOUT);
        if timeout.is_zero() {
            let what = "a request timeout of zero: no store could answer in time";
            return Err(Error::invalid(what));
        }
        let label: Arc<str> = match settings.label {
            Some(label) => label::check(&label).map(|()| label.into())?,
            None => label::of_process(settings.program.as_deref()).into(),
        };
        let prefix = settings.prefix.unwrap_or_default();
        // With one more byte, which a name has at least.
        LockName::new(format!("{prefix}-"))?;
        let capabilities = self.store.capabilities();
        let mut options = HoldOptions {
            lease: settings.lease.unwrap_or_else(|| nearest(&capabilities)),
            max_hold: None,
            min_hold: None,
            owner: None,
            former: Duration::ZERO,
        };
        if let Some(limit) = settings.max_hold {
            options = options.with_max_hold(limit)?;
        }
        let context = Context {
            store: self.store,
            capabilities,
            clock: settings.clock.unwrap_or_else(|| Arc::new(BootClock)),
            runtime: Runtime::new(handle),
            id: ClientId::random(),
            label: Some(label).filter(|label| !label.is_empty()),
            prefix,
            timeout: timeout.min(LONGEST),
            outage: settings
                .outage
                .unwrap_or(ClientSettings::DEFAULT_OUTAGE)
                .min(LONGEST),
            pending: Pending::default(),
            attempts: Pending::default(),
            releases: Semaphore::new(RELEASES_IN_FLIGHT),
            renewals: Semaphore::new(PARTS_IN_FLIGHT),
        };
        context.check_lease(options.lease)?;
        let shared = Arc::new(Shared::new(context, options));
        let (schedule, context) = (Arc::clone(&shared.schedule), &shared.context);
        let renewals = renewal::run(schedule, Arc::clone(&context.clock));
        drop(context.runtime.spawn(renewals));
        Ok(LockClient { shared })
    }
}

/// The default lease, or the nearest that the store can do.
fn nearest(capabilities: &Capabilities) -> Lease {
    let ttl = Lease::default().ttl();
    Lease::renewed(ttl.clamp(capabilities.min_ttl, capabilities.max_ttl))
}
