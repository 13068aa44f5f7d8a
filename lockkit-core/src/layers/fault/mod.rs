//! A store with injected faults, to test how a program handles them.

mod faults;
mod script;

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;

pub use self::faults::Faults;
use self::script::{End, Plan, Reach};
pub use self::script::{Fault, Operation, Rule};
use crate::contract::{
    Attempt, BackendError, Capabilities, DistributedLock, HolderId, LockName, LockState, Outcome,
    Release, Renewal, Ticket, Wake, Watch,
};
use crate::store::sync::lock;

/// Puts faults between the client and a store: lost, slow and late requests and replies, refusals,
/// outages and lost wake-ups, at random from a seed or one by one.
///
/// Take the handle with [`faults`](Self::faults) before the client takes the store. The same seed
/// and the same order of calls give the same faults; all waiting is `tokio::time`, so that tests
/// with paused time work.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use lockkit_core::memory::MemoryStore;
/// use lockkit_core::layers::{Fault, Faulty, Operation, Rule};
///
/// let store = Faulty::new(Arc::new(MemoryStore::new()), 42);
/// let faults = store.faults();
/// faults.inject(Rule::new(Fault::DropReply).on(Operation::Release).times(1));
/// // ... hand `store` to a client, release a guard, and then:
/// assert_eq!(faults.calls(Operation::Release), 0);
/// faults.heal();
/// ```
#[derive(Clone, Debug)]
pub struct Faulty {
    inner: Arc<dyn DistributedLock>,
    faults: Faults,
    turns: Arc<Mutex<HashMap<HolderId, Arc<Turn>>>>,
}

/// That of a call for a ticket.
type Turn = tokio::sync::Mutex<()>;

impl Faulty {
    /// Wraps `inner`. Nothing fails until the handle says so.
    #[must_use]
    pub fn new(inner: Arc<dyn DistributedLock>, seed: u64) -> Self {
        Self {
            inner,
            faults: Faults::new(seed),
            turns: Arc::default(),
        }
    }

    /// The handle that steers it.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    fn error(&self, operation: Operation, outcome: Outcome, what: &str) -> BackendError {
        BackendError::new(self.backend(), operation.as_str(), outcome, what)
    }

    /// The way of a request to the store.
    async fn travel(&self, operation: Operation, plan: &mut Plan) -> Result<(), BackendError> {
        pause(plan.before).await;
        if let Some(reach) = &mut plan.reach {
            while reach.changed().await.is_ok() && *reach.borrow() != Reach::Open {}
        }
        if self.faults.reachable().await {
            return Ok(());
        }
        let what = "injected: the store is down";
        Err(self.error(operation, Outcome::Unavailable, what))
    }

    async fn through<T, F>(
        &self,
        operation: Operation,
        name: Option<&LockName>,
        call: impl FnOnce(Arc<dyn DistributedLock>) -> F + Send,
    ) -> Result<T, BackendError>
    where
        T: Send,
        F: Future<Output = Result<T, BackendError>> + Send + 'static,
    {
        let mut plan = self.faults.plan(operation, name);
        self.travel(operation, &mut plan).await?;
        let call = || call(Arc::clone(&self.inner));
        let answer = match plan.end {
            None => call().await,
            Some(end) => Err(self.end(operation, end, call()).await),
        };
        pause(plan.after).await;
        answer
    }

    /// The same for a call about a ticket, after those before it: they never overlap, also where one is late.
    async fn in_turn<T, F>(
        &self,
        operation: Operation,
        ticket: &Ticket,
        call: impl FnOnce(Arc<dyn DistributedLock>) -> F + Send,
    ) -> Result<T, BackendError>
    where
        T: Send,
        F: Future<Output = Result<T, BackendError>> + Send + 'static,
    {
        let call = |inner| {
            let mut turns = lock(&self.turns);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            let turn = Arc::clone(turns.entry(ticket.holder).or_default());
            let call = call(inner);
            async move {
                let _turn = turn.lock().await;
                call.await
            }
        };
        self.through(operation, Some(&ticket.name), call).await
    }

    /// Carries out `request` as `end` says, and returns the error that the caller sees.
    async fn end<F>(&self, operation: Operation, end: End, request: F) -> BackendError
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let (outcome, what) = match end {
            End::Fail(outcome) => (outcome, "injected: the request failed"),
            End::DropReply => {
                drop(request.await);
                (Outcome::Indeterminate, "injected: the reply was lost")
            }
            End::Late(after) => {
                self.later(after, request).await;
                (Outcome::Indeterminate, "injected: the request is late")
            }
        };
        self.error(operation, outcome, what)
    }

    /// Carries out `request` after a while, whatever becomes of the caller; at once where there is
    /// no runtime to do it.
    async fn later<F>(&self, after: Duration, request: F)
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let late = self.faults.late();
        let request = async move {
            pause(after).await;
            drop(request.await);
            drop(late);
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(request)),
            Err(_) => request.await,
        }
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Faulty {
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
        let mine = ticket.clone();
        let call = |inner: Arc<dyn DistributedLock>| async move { inner.attempt(&mine).await };
        self.in_turn(Operation::Attempt, ticket, call).await
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>, BackendError> {
        let mine = ticket.clone();
        let call = |inner: Arc<dyn DistributedLock>| async move { inner.watch(&mine).await };
        let inner = self.in_turn(Operation::Watch, ticket, call).await?;
        Ok(Box::new(FaultyWatch {
            inner,
            faults: self.faults(),
            arrived: None,
        }))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal, BackendError>> {
        let (mut plan, ends) = self.faults.plan_batch(tickets);
        if let Err(error) = self.travel(Operation::Renew, &mut plan).await {
            return tickets.iter().map(|_| Err(error.clone())).collect();
        }
        // One request for the tickets without a fault, and one for each of the others.
        let fine = tickets.iter().zip(&ends).filter(|(_, end)| end.is_none());
        let fine: Vec<Ticket> = fine.map(|(ticket, _)| ticket.clone()).collect();
        let mut answers = if fine.is_empty() {
            Vec::new().into_iter()
        } else {
            self.inner.renew(&fine).await.into_iter()
        };
        let mut all = Vec::with_capacity(tickets.len());
        for (ticket, end) in tickets.iter().zip(ends) {
            let Some(end) = end else {
                all.extend(answers.next());
                continue;
            };
            let (inner, ticket) = (Arc::clone(&self.inner), ticket.clone());
            let request = async move { inner.renew(&[ticket]).await };
            all.push(Err(self.end(Operation::Renew, end, request).await));
        }
        pause(plan.after).await;
        all
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let mine = ticket.clone();
        let call = |inner: Arc<dyn DistributedLock>| async move { inner.release(&mine).await };
        self.in_turn(Operation::Release, ticket, call).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let mine = name.clone();
        let call = |inner: Arc<dyn DistributedLock>| async move { inner.inspect(&mine).await };
        self.through(Operation::Inspect, Some(name), call).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>, BackendError> {
        let mine = name.clone();
        let call = |inner: Arc<dyn DistributedLock>| async move { inner.break_lock(&mine).await };
        self.through(Operation::BreakLock, Some(name), call).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>, BackendError> {
        let mine = prefix.to_owned();
        let call = |inner: Arc<dyn DistributedLock>| async move { inner.list(&mine).await };
        self.through(Operation::List, None, call).await
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool, BackendError> {
        let (mine, text) = (ticket.clone(), text.to_owned());
        let call = |inner: Arc<dyn DistributedLock>| async move { inner.note(&mine, &text).await };
        self.in_turn(Operation::Note, ticket, call).await
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let mine = ticket.clone();
        let call = |inner: Arc<dyn DistributedLock>| async move { inner.adopt(from, &mine).await };
        self.in_turn(Operation::Adopt, ticket, call).await
    }

    fn forget(&self, holder: HolderId) {
        self.inner.forget(holder);
    }

    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}

struct FaultyWatch {
    inner: Box<dyn Watch>,
    faults: Faults,
    /// Came from the store and was not returned yet: it outlives a call that was dropped.
    arrived: Option<Result<Wake, BackendError>>,
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Watch for FaultyWatch {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        loop {
            if self.arrived.is_none() {
                let wake = self.inner.changed().await;
                if wake.is_ok() && self.faults.loses_wake() {
                    continue;
                }
                self.arrived = Some(wake);
            }
            self.faults.open().await;
            if let Some(wake) = self.arrived.take() {
                return wake;
            }
        }
    }
}
