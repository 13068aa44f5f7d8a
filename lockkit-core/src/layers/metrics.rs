//! Counters and durations through the `metrics` facade.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use metrics::{counter, describe_counter, describe_histogram, histogram};
use tokio::time::Instant;

use super::outcome::{Answer, ObservedWatch, observe};
use crate::contract::{
    Attempt, BackendError, Capabilities, DistributedLock, HolderId, LockName, LockState, Release,
    Renewal, Ticket, Watch,
};

const CALLS: &str = "lockkit_store_calls_total";
const SECONDS: &str = "lockkit_store_call_seconds";
const RENEWALS: &str = "lockkit_store_renewals_total";
const WAKES: &str = "lockkit_store_wakes_total";

/// Counts and times the calls of a store.
///
/// | metric | kind | labels | counts |
/// |---|---|---|---|
/// | `lockkit_store_calls_total` | counter | `backend`, `operation`, `outcome` | calls; a batch of renewals is one |
/// | `lockkit_store_call_seconds` | histogram | `backend`, `operation`, `outcome` | how long a call took, in seconds |
/// | `lockkit_store_renewals_total` | counter | `backend`, `outcome` | tickets in batches of renewals |
/// | `lockkit_store_wakes_total` | counter | `backend`, `wake` | wake-ups that watches yielded |
///
/// - `operation`: `attempt`, `watch`, `renew`, `release`, `inspect`, `break_lock`, `list`, `note`,
///   `adopt`.
/// - `outcome`: `granted`, `held`, `renewed`, `session_ended`, `released`, `not_held`, `ok`; for an error
///   `rejected`, `unavailable`, `indeterminate`; `cancelled` if the caller dropped the call, as the client does
///   at its time limit. A batch shows the first outcome in it that is not `renewed`.
/// - `wake`: `retry`, `granted`, `lost`, or the outcome of an error.
///
/// No label depends on names of locks, so the number of series is bounded.
///
/// # Examples
/// The new client has none of the old one's options: set its lease, label and time limits again.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
/// use std::sync::Arc;
/// use lockkit_core::{LockClient, layers::Metered, memory::MemoryStore};
///
/// let client = LockClient::new(MemoryStore::new())?;      // or lockkit::connect("redis://host").await?
/// let store = Metered::new(client.backend().clone());
/// let client = LockClient::builder_arc(Arc::new(store)).build()?;
/// # let _ = client;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Metered {
    inner: Arc<dyn DistributedLock>,
}

impl Metered {
    /// Wraps `inner` and describes the metrics to the recorder that is installed.
    #[must_use]
    pub fn new(inner: Arc<dyn DistributedLock>) -> Self {
        describe_counter!(CALLS, "Calls of the lock store");
        describe_histogram!(
            SECONDS,
            metrics::Unit::Seconds,
            "How long calls of the lock store took"
        );
        describe_counter!(RENEWALS, "Leases in batches of renewals");
        describe_counter!(WAKES, "Wake-ups from the lock store");
        Self { inner }
    }

    async fn measure<T: Answer>(
        &self,
        operation: &'static str,
        call: impl Future<Output = T> + Send,
    ) -> T {
        let (backend, begin) = (self.backend(), Instant::now());
        let report = |outcome| {
            let labels = [
                ("backend", backend),
                ("operation", operation),
                ("outcome", outcome),
            ];
            counter!(CALLS, &labels).increment(1);
            histogram!(SECONDS, &labels).record(begin.elapsed());
        };
        observe(call, report).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Metered {
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
        self.measure("attempt", self.inner.attempt(ticket)).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        let inner = self.measure("watch", self.inner.watch(ticket)).await?;
        let backend = self.backend();
        let report = move |wake| {
            counter!(WAKES, "backend" => backend, "wake" => wake).increment(1);
        };
        Ok(Box::new(ObservedWatch { inner, report }))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let answers = self.measure("renew", self.inner.renew(tickets)).await;
        for answer in &answers {
            let labels = [("backend", self.backend()), ("outcome", answer.word())];
            counter!(RENEWALS, &labels).increment(1);
        }
        answers
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.measure("release", self.inner.release(ticket)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.measure("inspect", self.inner.inspect(name)).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.measure("break_lock", self.inner.break_lock(name))
            .await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        self.measure("list", self.inner.list(prefix)).await
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool, BackendError> {
        self.measure("note", self.inner.note(ticket, text)).await
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.measure("adopt", self.inner.adopt(from, ticket)).await
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
