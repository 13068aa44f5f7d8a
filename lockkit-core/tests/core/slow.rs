//! Stores around the memory store that misbehave in one way, and a way to poll a future so many times.

use std::any::Any;
use std::pin::pin;
use std::task::Poll;

use async_trait::async_trait;
use lockkit_core::contract::{Attempt, LockState, Release, Renewal, Ticket, Watch};
use lockkit_core::memory::MemoryStore;
use lockkit_core::{BackendError, Capabilities, DistributedLock, HolderId, LockName};

/// Where it pretends to be.
pub(crate) const ADDRESS: &str = "10.0.0.7:6379";

/// Yields `polls` times before each request is carried out and `polls` times after it.
#[derive(Debug)]
pub(crate) struct Slow {
    inner: MemoryStore,
    polls: usize,
}

impl Slow {
    pub(crate) fn new(inner: MemoryStore, polls: usize) -> Self {
        Self { inner, polls }
    }

    async fn around<T>(&self, request: impl Future<Output = T>) -> T {
        for _ in 0..self.polls {
            tokio::task::yield_now().await;
        }
        let answer = request.await;
        for _ in 0..self.polls {
            tokio::task::yield_now().await;
        }
        answer
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Slow {
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn address(&self) -> Option<String> {
        Some(ADDRESS.to_owned())
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.around(self.inner.attempt(ticket)).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        self.around(self.inner.watch(ticket)).await
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        self.around(self.inner.renew(tickets)).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        self.around(self.inner.release(ticket)).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.around(self.inner.inspect(name)).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        self.around(self.inner.break_lock(name)).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        self.around(self.inner.list(prefix)).await
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool, BackendError> {
        self.around(self.inner.note(ticket, text)).await
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt, BackendError> {
        self.around(self.inner.adopt(from, ticket)).await
    }

    fn forget(&self, holder: HolderId) {
        self.inner.forget(holder);
    }

    fn as_any(&self) -> &dyn Any {
        &self.inner
    }
}

/// Polls `future` at most `polls` times and drops it; its value if it was ready.
pub(crate) async fn poll_times<T, E: std::fmt::Debug>(
    future: impl Future<Output = Result<T, E>>,
    polls: usize,
) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let ready =
            std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
        if let Poll::Ready(value) = ready {
            return Some(value.unwrap());
        }
        tokio::task::yield_now().await;
    }
    None
}
