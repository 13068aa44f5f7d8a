//! Releases what nobody holds any more, in the background: tickets of dropped guards, of lost holds
//! and of cancelled acquires.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use crate::client::runtime::Runtime;
use crate::contract::error::Outcome;
use crate::contract::{DistributedLock, Ticket};
use crate::sync::lock;
use crate::time::backoff::{jitter, retry_delay};
use crate::time::clock::{Clock, Moment};

/// At most this many requests are in flight at once.
const IN_FLIGHT: usize = 256;
/// So much more seldom a release is repeated that the store has refused for good.
const SELDOM: u32 = 30;

/// Carries on a request whose caller has gone; answers whether the ticket is still to be released.
pub(crate) type Before = Pin<Box<dyn Future<Output = bool> + Send>>;

/// A ticket that is to be released.
pub(crate) struct Retired {
    pub(crate) ticket: Ticket,
    pub(crate) before: Option<Before>,
    /// When its lease must have ended, if nobody renews it; the release is given up then. `None`
    /// where the lease is not the ticket's own.
    pub(crate) ends: Option<Moment>,
    pub(crate) outstanding: Outstanding,
}

/// The client's end of the reaper.
pub(crate) struct Reaper {
    reaping: Arc<Reaping>,
    runtime: Runtime,
    pending: Arc<Pending>,
    /// What may still bring a hold of which nothing is outstanding yet.
    attempts: Arc<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    count: AtomicUsize,
    idle: Notify,
}

impl Pending {
    fn add(this: &Arc<Self>) -> Outstanding {
        this.count.fetch_add(1, Ordering::AcqRel);
        Outstanding(Arc::clone(this))
    }

    async fn none(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// Counts as unfinished work of the client for as long as it lives.
#[derive(Debug)]
pub(crate) struct Outstanding(Arc<Pending>);

impl Drop for Outstanding {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

impl Reaper {
    pub(crate) fn new(reaping: Reaping, runtime: Runtime) -> Self {
        Self {
            reaping: Arc::new(reaping),
            runtime,
            pending: Arc::default(),
            attempts: Arc::default(),
        }
    }

    pub(crate) fn outstanding(&self) -> Outstanding {
        Pending::add(&self.pending)
    }

    /// Counts an attempt until its hold has begun, or what it leaves is outstanding.
    pub(crate) fn attempting(&self) -> Outstanding {
        Pending::add(&self.attempts)
    }

    /// Releases a ticket in a task of the client's runtime. Never blocks or panics (INV-8); where that
    /// runtime has stopped, the lease ends what would have been released.
    pub(crate) fn submit(&self, retired: Retired) {
        // Detached: it ends when the store answers, or the lease has ended.
        drop(
            self.runtime
                .spawn(Arc::clone(&self.reaping).release(retired)),
        );
    }

    /// Waits until nothing is outstanding.
    pub(crate) async fn idle(&self) {
        self.pending.none().await;
    }

    /// Waits until nothing is outstanding, nor will be: the client is closed.
    pub(crate) async fn settled(&self) {
        self.attempts.none().await;
        self.pending.none().await;
    }
}

/// What a release needs; not the client, which ends when its last handle and guard are gone.
pub(crate) struct Reaping {
    pub(crate) store: Arc<dyn DistributedLock>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timeout: Duration,
    pub(crate) random: Mutex<Rng>,
    turns: Semaphore,
}

impl Reaping {
    pub(crate) const fn new(
        store: Arc<dyn DistributedLock>,
        clock: Arc<dyn Clock>,
        timeout: Duration,
        random: Rng,
    ) -> Self {
        Self {
            store,
            clock,
            timeout,
            random: Mutex::new(random),
            turns: Semaphore::const_new(IN_FLIGHT),
        }
    }

    /// Repeats the release until the store answers, or the lease has ended.
    async fn release(self: Arc<Self>, retired: Retired) {
        let _outstanding = retired.outstanding;
        if let Some(before) = retired.before
            && !before.await
        {
            return;
        }
        let mut errors = 0;
        while retired.ends.is_none_or(|ends| self.clock.now() < ends) {
            let error = match self.ask(&retired.ticket).await {
                Ok(()) => return,
                Err(outcome) => outcome,
            };
            let mut pause = retry_delay(errors, jitter(&mut lock(&self.random)));
            if error == Outcome::Rejected {
                pause *= SELDOM;
            }
            if let Some(ends) = retired.ends {
                pause = pause.min(ends.since(self.clock.now()));
            }
            sleep(pause).await;
            errors += 1;
        }
    }

    /// Asks once, when it has its turn, which it keeps for this request only.
    async fn ask(&self, ticket: &Ticket) -> Result<(), Outcome> {
        // Never closed.
        let _turn = self.turns.acquire().await;
        match timeout(self.timeout, self.store.release(ticket)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.outcome()),
            Err(_) => Err(Outcome::Indeterminate),
        }
    }
}
