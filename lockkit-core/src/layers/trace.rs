//! Spans through `tracing`.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use tracing::{Instrument, Span, debug_span, field};

use super::outcome::{Answer, ObservedWatch, observe};
use crate::contract::{
    Attempt, BackendError, Capabilities, DistributedLock, HolderId, LockName, LockState, Release,
    Renewal, Ticket, Watch,
};

/// Opens a span at debug level, named `lockkit`, around each call.
///
/// | field | content |
/// |---|---|
/// | `backend` | the store: `redis`, `memory` |
/// | `operation` | `attempt`, `watch`, `renew`, `release`, `inspect`, `break_lock`, `list`, `note`, `adopt` |
/// | `name` | the lock, where the call has one |
/// | `holder` | the ticket's holder, where the call has one |
/// | `tickets` | how many a renewal has |
/// | `outcome` | `granted`, `held`, `renewed`, `session_ended`, `released`, `not_held`, `ok`; for an error `rejected`, `unavailable`, `indeterminate`; `cancelled` if the caller dropped the call |
///
/// A wake-up is an event at debug level with `backend`, `name`, `holder` and `wake`. There are no
/// secrets in any of them.
#[derive(Clone, Debug)]
pub struct Traced {
    inner: Arc<dyn DistributedLock>,
}

impl Traced {
    /// Wraps `inner`.
    #[must_use]
    pub const fn new(inner: Arc<dyn DistributedLock>) -> Self {
        Self { inner }
    }

    /// Runs `call` in `span` and writes its outcome there.
    async fn record<T: Answer>(span: Span, call: impl Future<Output = T> + Send) -> T {
        let call = call.instrument(span.clone());
        let report = |outcome| {
            span.record("outcome", outcome);
        };
        observe(call, report).await
    }

    fn span(&self, operation: &'static str, name: &str, holder: Option<HolderId>) -> Span {
        debug_span!(
            "lockkit",
            backend = self.backend(),
            operation,
            name,
            holder = holder.map(field::display),
            outcome = field::Empty,
        )
    }

    fn ticket_span(&self, operation: &'static str, ticket: &Ticket) -> Span {
        self.span(operation, ticket.name.as_str(), Some(ticket.holder))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Traced {
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
        let span = self.ticket_span("attempt", ticket);
        Self::record(span, self.inner.attempt(ticket)).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        let span = self.ticket_span("watch", ticket);
        let inner = Self::record(span, self.inner.watch(ticket)).await?;
        let (backend, ticket) = (self.backend(), ticket.clone());
        let report = move |wake| {
            let (name, holder) = (ticket.name.as_str(), &ticket.holder);
            tracing::debug!(backend, name, %holder, wake);
        };
        Ok(Box::new(ObservedWatch { inner, report }))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let span = debug_span!(
            "lockkit",
            backend = self.backend(),
            operation = "renew",
            tickets = tickets.len(),
            outcome = field::Empty,
        );
        Self::record(span, self.inner.renew(tickets)).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let span = self.ticket_span("release", ticket);
        Self::record(span, self.inner.release(ticket)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let span = self.span("inspect", name.as_str(), None);
        Self::record(span, self.inner.inspect(name)).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let span = self.span("break_lock", name.as_str(), None);
        Self::record(span, self.inner.break_lock(name)).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let span = self.span("list", prefix, None);
        Self::record(span, self.inner.list(prefix)).await
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool, BackendError> {
        let span = self.ticket_span("note", ticket);
        Self::record(span, self.inner.note(ticket, text)).await
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let span = self.ticket_span("adopt", ticket);
        Self::record(span, self.inner.adopt(from, ticket)).await
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
