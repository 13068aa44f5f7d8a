//! What every part of a client uses: its store, clock, runtime, limits and counts.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::client::outstanding::Pending;
use crate::client::runtime::Runtime;
use crate::contract::{
    BackendError, Capabilities, ClientId, DistributedLock, EndsBy, Error, Grant, LockName, Mode,
    Outcome, Result, TtlOf,
};
use crate::time::clock::{Clock, Moment};
use crate::time::lease::{Lease, window};
use crate::url::format_duration;

/// It knows no hold and no waiter: a task that has it does not keep the client alive.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) store: Arc<dyn DistributedLock>,
    pub(crate) capabilities: Capabilities,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Runtime,
    pub(crate) id: ClientId,
    /// What operators read of this client.
    pub(crate) label: Option<Arc<str>>,
    /// What the store has before every name of this client.
    pub(crate) prefix: String,
    /// The longest that one request may take.
    pub(crate) timeout: Duration,
    /// After how long a failing store is given up by an acquire without a limit.
    pub(crate) outage: Duration,
    /// What `drain` waits for.
    pub(crate) pending: Pending,
    /// Attempts that may still bring a hold of which nothing is pending yet.
    pub(crate) attempts: Pending,
    /// Bounds the releases that are in flight at once.
    pub(crate) releases: Semaphore,
    /// Bounds the parts of failed renewals that are in flight at once.
    pub(crate) renewals: Semaphore,
}

impl Context {
    /// Whether the store ends a hold by itself when no client renews it.
    pub(crate) fn lease_ends_hold(&self) -> bool {
        self.capabilities.ttl_of == TtlOf::PerHold && self.capabilities.ends_by == EndsBy::Lease
    }

    /// Whether a hold lasts as long as its lease when its client has gone. Where the store tells of losses,
    /// it may end with the session of its client.
    pub(crate) fn lease_keeps_hold(&self) -> bool {
        self.lease_ends_hold() && !self.capabilities.tells_loss
    }

    /// From when on a grant counts that answered a request written at `sent`; `None` if its window
    /// has closed. Such a grant is attempted again and never believed. INV-2.
    pub(crate) fn since(&self, grant: &Grant, sent: Moment) -> Option<Moment> {
        let now = self.clock.now();
        let since = grant.since.unwrap_or(sent);
        (now < since + window(grant.ttl)).then_some(since)
    }

    /// The failure of a grant that came too late to be believed.
    pub(crate) fn late_grant(&self) -> BackendError {
        let why = "the grant came when its lease was almost over";
        BackendError::new(self.store.backend(), "attempt", Outcome::Indeterminate, why)
    }

    pub(crate) fn timed_out(&self, operation: &'static str, limit: Duration) -> BackendError {
        let (store, address) = (self.store.backend(), self.store.address());
        BackendError::timeout(store, operation, limit, address.as_deref())
    }

    /// Waits for the answer to a request for as long as one may take.
    pub(crate) async fn bounded<T>(
        &self,
        operation: &'static str,
        request: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        match timeout(self.timeout, request).await {
            Ok(answer) => answer,
            Err(_) => Err(self.timed_out(operation, self.timeout)),
        }
    }

    /// Sends a request on the client's runtime.
    pub(crate) async fn request<T, F>(
        self: &Arc<Self>,
        operation: &'static str,
        request: impl FnOnce(Arc<dyn DistributedLock>) -> F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, BackendError>> + Send + 'static,
    {
        if Handle::try_current().is_err() {
            return Err(Error::NoRuntime);
        }
        let (context, request) = (Arc::clone(self), request(Arc::clone(&self.store)));
        let bounded = async move { context.bounded(operation, request).await };
        Ok(self.runtime.run(bounded).await??)
    }

    /// The name that the store has for a lock.
    pub(crate) fn stored(&self, name: &LockName) -> Result<LockName> {
        if self.prefix.is_empty() {
            return Ok(name.clone());
        }
        LockName::new(format!("{}{name}", self.prefix)).map_err(|_| {
            Error::invalid(format!(
                "the name has {} bytes with the prefix `{}`: at most {} are possible",
                self.prefix.len() + name.as_str().len(),
                self.prefix,
                LockName::MAX_LEN,
            ))
        })
    }

    /// The name that the caller has for a lock of the store.
    pub(crate) fn shown(&self, stored: &LockName) -> LockName {
        let name = stored.as_str().strip_prefix(&self.prefix);
        let name = name.filter(|name| name.len() < stored.as_str().len());
        name.and_then(|name| LockName::new(name).ok())
            .unwrap_or_else(|| stored.clone())
    }

    /// Checks a mode against what the store can do.
    pub(crate) fn check_mode(&self, mode: Mode) -> Result<()> {
        self.offered(
            self.capabilities.shares || mode == Mode::Exclusive,
            "has exclusive locks only: it can do no readers-writer locks and no semaphores",
        )
    }

    /// Checks that the store keeps notes.
    pub(crate) fn check_notes(&self) -> Result<()> {
        self.offered(self.capabilities.notes, "keeps no notes of its holders")
    }

    /// Checks that the store can pass a hold on.
    pub(crate) fn check_adopts(&self) -> Result<()> {
        self.offered(
            self.capabilities.adopts,
            "cannot pass a hold from one process to another",
        )
    }

    fn offered(&self, is_offered: bool, lack: &str) -> Result<()> {
        if is_offered {
            return Ok(());
        }
        let what = format!("the {} store {lack}", self.store.backend());
        Err(Error::Unsupported { what })
    }

    /// Checks a lease against what the store can do.
    pub(crate) fn check_lease(&self, lease: Lease) -> Result<()> {
        let Capabilities {
            min_ttl: min,
            max_ttl: max,
            ttl_step: step,
            ttl_of,
            ..
        } = self.capabilities;
        let ttl = lease.ttl();
        // Where the session's lease counts, the client alone ends a fixed lease, at any later time.
        let bounded = ttl_of == TtlOf::PerHold || matches!(lease, Lease::Renewed { .. });
        let wish = format!("the lease cannot be {}", format_duration(ttl));
        let store = self.store.backend();
        let what = if ttl < min || (bounded && ttl > max) {
            let (min, max) = (format_duration(min), format_duration(max));
            if ttl_of == TtlOf::PerSession && min == max {
                format!(
                    "{wish}: in the {store} store all holds of a client have the lease of its session, {max}; `ttl=` in its URL asks for another one, within what its servers grant"
                )
            } else {
                format!("{wish}: the {store} store can do {min} to {max}")
            }
        } else if !step.is_zero() && bounded && !ttl.as_nanos().is_multiple_of(step.as_nanos()) {
            let step = format_duration(step);
            format!("{wish}: the {store} store can do multiples of {step}")
        } else {
            return Ok(());
        };
        Err(Error::Unsupported { what })
    }
}
