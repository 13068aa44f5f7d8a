//! Spans through `tracing`, counters and durations through the `metrics` facade.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
#[cfg(feature = "metrics")]
use metrics::{counter, describe_counter, describe_histogram, histogram};
#[cfg(feature = "metrics")]
use tokio::time::Instant;
#[cfg(feature = "tracing")]
use tracing::{Instrument as _, debug_span, field};

use super::outcome::{Answer, ObservedWatch, observe};
use crate::contract::{
    Attempt, BackendError, Capabilities, DistributedLock, HolderId, LockName, LockState, Release,
    Renewal, Ticket, Watch,
};

#[cfg(feature = "metrics")]
const CALLS: &str = "lockkit_store_calls_total";
#[cfg(feature = "metrics")]
const SECONDS: &str = "lockkit_store_call_seconds";
#[cfg(feature = "metrics")]
const RENEWALS: &str = "lockkit_store_renewals_total";
#[cfg(feature = "metrics")]
const WAKES: &str = "lockkit_store_wakes_total";

/// Shows the calls of a store: in spans with feature `tracing`, in counters and durations with feature `metrics`.
///
/// Each call has a span at debug level, named `lockkit`. A wake-up is an event at debug level with `backend`, `name`,
/// `holder` and `wake`. There are no secrets in any of them.
///
/// | field | content |
/// |---|---|
/// | `backend` | the store: `redis`, `memory` |
/// | `operation` | `attempt`, `watch`, `renew`, `release`, `inspect`, `break_lock`, `list`, `note`, `adopt` |
/// | `name` | the lock, where the call has one |
/// | `holder` | the ticket's holder, where the call has one |
/// | `tickets` | how many a renewal has |
/// | `outcome` | `granted`, `held`, `renewed`, `session_ended`, `released`, `not_held`, `ok`; for an error `rejected`, `unavailable`, `indeterminate`; `cancelled` if the caller dropped the call, as the client does at its time limit. A batch shows the first outcome in it that is not `renewed` |
/// | `wake` | `retry`, `granted`, `lost`, or the outcome of an error |
///
/// Labels of metrics have the values of the fields of the same name. There is none for `name` or `holder`, so that the
/// number of series is bounded.
///
/// | metric | kind | labels | counts |
/// |---|---|---|---|
/// | `lockkit_store_calls_total` | counter | `backend`, `operation`, `outcome` | calls; a batch of renewals is one |
/// | `lockkit_store_call_seconds` | histogram | `backend`, `operation`, `outcome` | how long a call took, in seconds |
/// | `lockkit_store_renewals_total` | counter | `backend`, `outcome` | tickets in batches of renewals |
/// | `lockkit_store_wakes_total` | counter | `backend`, `wake` | wake-ups that watches yielded |
///
/// # Examples
/// The new client has none of the old one's options: set its lease, label and time limits again.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
/// use std::sync::Arc;
/// use lockkit_core::{LockClient, layers::Instrumented, memory::MemoryStore};
///
/// let client = LockClient::new(MemoryStore::new())?;      // or lockkit::connect("redis://host").await?
/// let store = Instrumented::new(client.backend().clone());
/// let client = LockClient::builder_arc(Arc::new(store)).build()?;
/// # let _ = client;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Instrumented {
    inner: Arc<dyn DistributedLock>,
}

/// A call, as its span shows it.
#[derive(Default)]
#[cfg_attr(
    not(feature = "tracing"),
    expect(dead_code, reason = "metrics show the operation alone")
)]
struct Call<'a> {
    operation: &'static str,
    name: Option<&'a str>,
    holder: Option<HolderId>,
    tickets: Option<usize>,
}

impl<'a> Call<'a> {
    fn on(operation: &'static str, name: &'a str) -> Self {
        Self {
            operation,
            name: Some(name),
            ..Self::default()
        }
    }

    fn of(operation: &'static str, ticket: &'a Ticket) -> Self {
        Self {
            holder: Some(ticket.holder),
            ..Self::on(operation, ticket.name.as_str())
        }
    }
}

impl Instrumented {
    /// Wraps `inner`, and describes the metrics to the recorder that is installed.
    #[must_use]
    pub fn new(inner: Arc<dyn DistributedLock>) -> Self {
        #[cfg(feature = "metrics")]
        {
            describe_counter!(CALLS, "Calls of the lock store");
            let unit = metrics::Unit::Seconds;
            describe_histogram!(SECONDS, unit, "How long calls of the lock store took");
            describe_counter!(RENEWALS, "Leases in batches of renewals");
            describe_counter!(WAKES, "Wake-ups from the lock store");
        }
        Self { inner }
    }

    async fn observe<T: Answer>(
        &self,
        call: Call<'_>,
        answer: impl Future<Output = T> + Send,
    ) -> T {
        let (backend, operation) = (self.backend(), call.operation);
        #[cfg(feature = "tracing")]
        let span = debug_span!(
            "lockkit",
            backend,
            operation,
            name = call.name,
            holder = call.holder.map(field::display),
            tickets = call.tickets,
            outcome = field::Empty,
        );
        #[cfg(feature = "tracing")]
        let answer = answer.instrument(span.clone());
        #[cfg(feature = "metrics")]
        let begin = Instant::now();
        let report = |outcome| {
            #[cfg(feature = "tracing")]
            span.record("outcome", outcome);
            #[cfg(feature = "metrics")]
            {
                let labels = [
                    ("backend", backend),
                    ("operation", operation),
                    ("outcome", outcome),
                ];
                counter!(CALLS, &labels).increment(1);
                histogram!(SECONDS, &labels).record(begin.elapsed());
            }
        };
        observe(answer, report).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Instrumented {
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
        let call = Call::of("attempt", ticket);
        self.observe(call, self.inner.attempt(ticket)).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        let call = Call::of("watch", ticket);
        let inner = self.observe(call, self.inner.watch(ticket)).await?;
        let backend = self.backend();
        #[cfg(feature = "tracing")]
        let ticket = ticket.clone();
        let report = move |wake| {
            #[cfg(feature = "tracing")]
            tracing::debug!(backend, name = ticket.name.as_str(), holder = %ticket.holder, wake);
            #[cfg(feature = "metrics")]
            counter!(WAKES, "backend" => backend, "wake" => wake).increment(1);
        };
        Ok(Box::new(ObservedWatch { inner, report }))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let call = Call {
            operation: "renew",
            tickets: Some(tickets.len()),
            ..Call::default()
        };
        let answers = self.observe(call, self.inner.renew(tickets)).await;
        #[cfg(feature = "metrics")]
        for answer in &answers {
            let labels = [("backend", self.backend()), ("outcome", answer.word())];
            counter!(RENEWALS, &labels).increment(1);
        }
        answers
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let call = Call::of("release", ticket);
        self.observe(call, self.inner.release(ticket)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let call = Call::on("inspect", name.as_str());
        self.observe(call, self.inner.inspect(name)).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let call = Call::on("break_lock", name.as_str());
        self.observe(call, self.inner.break_lock(name)).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let call = Call::on("list", prefix);
        self.observe(call, self.inner.list(prefix)).await
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool, BackendError> {
        let call = Call::of("note", ticket);
        self.observe(call, self.inner.note(ticket, text)).await
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let call = Call::of("adopt", ticket);
        self.observe(call, self.inner.adopt(from, ticket)).await
    }

    fn forget(&self, holder: HolderId) {
        self.inner.forget(holder);
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
