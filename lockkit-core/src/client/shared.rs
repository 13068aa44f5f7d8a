//! What the handles and guards of one client share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::client::hold::Hold;
use crate::client::keeper::Keeper;
use crate::client::owner::Owners;
use crate::client::queue::{Key, Table};
use crate::client::reaper::{Before, Outstanding, Reaper, Retired};
use crate::client::runtime::Runtime;
use crate::contract::capability::{Capabilities, EndsBy, TtlOf};
use crate::contract::error::{BackendError, Error, LossReason, Outcome, Result};
use crate::contract::holder::{ClientId, HolderId};
use crate::contract::{DistributedLock, Grant, Ticket};
use crate::mutants::{Broken, Mutant};
use crate::sync::lock;
use crate::time::backoff::jitter;
use crate::time::clock::{Clock, Moment};
use crate::time::lease::{Lease, window};
use crate::url::format_duration;

/// What all handles and guards of a client share.
pub(crate) struct Core {
    pub(crate) store: Arc<dyn DistributedLock>,
    pub(crate) capabilities: Capabilities,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) runtime: Runtime,
    pub(crate) keeper: Arc<Keeper>,
    pub(crate) reaper: Reaper,
    pub(crate) table: Table,
    pub(crate) owners: Arc<Owners>,
    pub(crate) id: ClientId,
    pub(crate) timeout: Duration,
    pub(crate) outage: Duration,
    pub(crate) broken: Broken,
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) random: Mutex<Rng>,
    pub(crate) ids: AtomicU64,
    /// Apart from other ids, so that the numbers of tickets have no gaps.
    pub(crate) tickets: AtomicU64,
    pub(crate) closing: AtomicBool,
}

impl Core {
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A new ticket, with an identity that was never used. INV-3.
    pub(crate) fn ticket(&self, key: &Key, enqueue: bool) -> Ticket {
        let number = if self.broken.is(Mutant::HolderReused) {
            1
        } else {
            self.tickets.fetch_add(1, Ordering::Relaxed) + 1
        };
        Ticket {
            name: key.name.clone(),
            holder: HolderId::new(self.id, number),
            mode: key.mode,
            ttl: key.ttl,
            enqueue,
        }
    }

    /// From when on a grant counts that answered an attempt written at `sent`.
    pub(crate) fn since(&self, grant: &Grant, sent: Moment) -> Moment {
        let sent = if self.broken.is(Mutant::WindowFromReply) {
            self.clock.now()
        } else {
            sent
        };
        match grant.since {
            Some(since) if !self.broken.is(Mutant::LeaseAgeIgnored) => since,
            _ => sent,
        }
    }

    /// Whether the window of a grant that counts from `since` is still open. A grant that is older
    /// is attempted again and never believed. INV-2.
    pub(crate) fn believes(&self, grant: &Grant, since: Moment) -> bool {
        self.clock.now() < since + window(grant.ttl)
    }

    /// Releases a ticket in the background.
    pub(crate) fn release_later(&self, ticket: Ticket) {
        self.release_after(ticket, None, self.reaper.outstanding());
    }

    /// Releases a ticket in the background, if what is still in flight for it says so.
    pub(crate) fn release_after(
        &self,
        ticket: Ticket,
        before: Option<Before>,
        outstanding: Outstanding,
    ) {
        // One request may still be on its way when this begins, and one per cent is for the clocks.
        let ends = self
            .lease_ends_it()
            .then(|| self.clock.now() + ticket.ttl + ticket.ttl / 100 + self.timeout);
        self.reaper.submit(Retired {
            ticket,
            before,
            ends,
            outstanding,
        });
    }

    /// Whether the store ends a hold by itself when nobody renews it.
    pub(crate) fn lease_ends_it(&self) -> bool {
        self.capabilities.ttl_of == TtlOf::PerHold && self.capabilities.ends_by == EndsBy::Lease
    }

    /// What a guard must never do when it is dropped; the suite's mutant does it.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the mistake that the suite must catch"
    )]
    pub(crate) fn release_by_spawning(&self, ticket: &Ticket) {
        let (store, ticket) = (Arc::clone(&self.store), ticket.clone());
        drop(tokio::spawn(async move { store.release(&ticket).await }));
    }

    /// Begins to close the client, or goes on with it.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        self.table.close(|| self.reaper.outstanding());
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// A random number in `-1.0..=1.0`.
    pub(crate) fn jitter(&self) -> f64 {
        jitter(&mut lock(&self.random))
    }

    /// Carries out a request on the client's runtime that no other policy bounds.
    pub(crate) async fn request<T, F>(
        &self,
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
        let (backend, limit) = (self.store.backend(), self.timeout);
        let request = request(Arc::clone(&self.store));
        let bounded = async move {
            let answer = timeout(limit, request).await;
            answer.unwrap_or_else(|_| Err(BackendError::timeout(backend, operation, limit)))
        };
        Ok(self.runtime.run(bounded).await??)
    }

    /// What a grant says that came too late to be believed.
    pub(crate) fn late_grant(&self) -> BackendError {
        let why = "the grant came when its lease was almost over";
        BackendError::new(self.store.backend(), "attempt", Outcome::Indeterminate, why)
    }

    /// Checks a lease against what the store can do.
    pub(crate) fn can_lease(&self, lease: Lease) -> Result<()> {
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
                    "{wish}: in the {store} store all holds of a client have the lease of its session, {max}; set another one with `ttl=` in its URL"
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

    /// Leaves a trace of a loss.
    #[cfg(feature = "tracing")]
    pub(crate) fn note_loss(&self, hold: &Hold, reason: LossReason) {
        if !hold.is_abandoned() {
            tracing::warn!(lock = %hold.ticket.name, token = %hold.token, %reason, "lock lost");
        }
    }

    /// Leaves a trace of a renewal that failed; those that fail after it leave none.
    #[cfg(feature = "tracing")]
    pub(crate) fn note_failed_renewal(&self, hold: &Hold, error: &BackendError) {
        tracing::warn!(lock = %hold.ticket.name, token = %hold.token, %error, "renewal failed");
    }

    #[cfg(not(feature = "tracing"))]
    #[expect(clippy::unused_self, reason = "the feature `tracing` reports it")]
    pub(crate) const fn note_loss(&self, _: &Hold, _: LossReason) {}

    #[cfg(not(feature = "tracing"))]
    #[expect(clippy::unused_self, reason = "the feature `tracing` reports it")]
    pub(crate) const fn note_failed_renewal(&self, _: &Hold, _: &BackendError) {}
}

impl Drop for Core {
    fn drop(&mut self) {
        self.keeper.stop(LossReason::Shutdown);
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.id)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
