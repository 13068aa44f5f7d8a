//! Counters and durations through the `metrics` facade.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use metrics::{counter, describe_counter, describe_histogram, histogram};
use tokio::time::Instant;

use super::outcome;
use crate::contract::capability::Capabilities;
use crate::contract::error::BackendError;
use crate::contract::name::LockName;
use crate::contract::{Attempt, DistributedLock, LockState, Release, Renewal, Ticket, Wake, Watch};

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
/// - `operation`: `attempt`, `watch`, `renew`, `release`, `inspect`, `break_lock`, `list`.
/// - `outcome`: `granted`, `held`, `renewed`, `released`, `not_held`, `ok`; for an error `rejected`,
///   `unavailable`, `indeterminate`; `cancelled` if the caller dropped the call, as the client does
///   at its time limit. A batch shows the first outcome in it that is not `renewed`.
/// - `wake`: `retry`, `granted`, `lost`, or the outcome of an error.
///
/// No label depends on names of locks, so the number of series is bounded.
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

    async fn measure<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = T> + Send,
        word: impl FnOnce(&T) -> &'static str + Send,
    ) -> T {
        let mut measured = Measured {
            backend: self.backend(),
            operation,
            begin: Instant::now(),
            outcome: outcome::CANCELLED,
        };
        let answer = call.await;
        measured.outcome = word(&answer);
        answer
    }
}

/// Reports also when the call is dropped.
struct Measured {
    backend: &'static str,
    operation: &'static str,
    begin: Instant,
    outcome: &'static str,
}

impl Drop for Measured {
    fn drop(&mut self) {
        let labels = [
            ("backend", self.backend),
            ("operation", self.operation),
            ("outcome", self.outcome),
        ];
        counter!(CALLS, &labels).increment(1);
        histogram!(SECONDS, &labels).record(self.begin.elapsed());
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Metered {
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let call = self.inner.attempt(ticket);
        self.measure("attempt", call, outcome::of_attempt).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        let call = self.inner.watch(ticket);
        let inner = self.measure("watch", call, outcome::of_other).await?;
        let backend = self.backend();
        Ok(Box::new(MeteredWatch { inner, backend }))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let call = self.inner.renew(tickets);
        let word = |answers: &Vec<_>| outcome::of_renewals(answers);
        let answers = self.measure("renew", call, word).await;
        for answer in &answers {
            let outcome = outcome::of_renewal(answer);
            counter!(RENEWALS, "backend" => self.backend(), "outcome" => outcome).increment(1);
        }
        answers
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let call = self.inner.release(ticket);
        self.measure("release", call, outcome::of_release).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let call = self.inner.inspect(name);
        self.measure("inspect", call, outcome::of_other).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let call = self.inner.break_lock(name);
        self.measure("break_lock", call, outcome::of_other).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let call = self.inner.list(prefix);
        self.measure("list", call, outcome::of_other).await
    }

    fn resolve(&self, ticket: &Ticket) -> Ticket {
        self.inner.resolve(ticket)
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

struct MeteredWatch {
    inner: Box<dyn Watch>,
    backend: &'static str,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Watch for MeteredWatch {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        let wake = self.inner.changed().await;
        let word = outcome::of_wake(&wake);
        counter!(WAKES, "backend" => self.backend, "wake" => word).increment(1);
        wake
    }
}
