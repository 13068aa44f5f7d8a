//! Releases what nobody holds any more, in the background: tickets of dropped guards, of lost holds
//! and of cancelled acquires.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::backend::{DistributedLock, Ticket};
use crate::capability::{Capabilities, EndsBy, TtlOf};
use crate::clock::Clock;
use crate::driver::Driver;
use crate::waiter::retry_delay;

/// At most this many releases are in flight at once.
const IN_FLIGHT: usize = 256;

/// Carries on a request whose caller has gone; answers whether the ticket is still to be released.
pub(crate) type Before = Pin<Box<dyn Future<Output = bool> + Send>>;

pub(crate) enum Job {
    /// Release a ticket, after what is still in flight for it.
    Release {
        ticket: Ticket,
        before: Option<Before>,
        outstanding: Outstanding,
    },
    /// Go on with a local queue whose first caller has gone.
    Drive(Driver),
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Release { ticket, .. } => f.debug_tuple("Release").field(ticket).finish(),
            Self::Drive(_) => f.write_str("Drive"),
        }
    }
}

/// The client's end of the reaper.
#[derive(Debug)]
pub(crate) struct Reaper {
    jobs: mpsc::UnboundedSender<Job>,
    pending: Arc<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    count: AtomicUsize,
    idle: Notify,
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
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Job>) {
        let (jobs, receiver) = mpsc::unbounded_channel();
        (
            Self {
                jobs,
                pending: Arc::default(),
            },
            receiver,
        )
    }

    pub(crate) fn outstanding(&self) -> Outstanding {
        self.pending.count.fetch_add(1, Ordering::AcqRel);
        Outstanding(Arc::clone(&self.pending))
    }

    /// Hands a job over. Never blocks, spawns or panics (INV-8); without a runtime the job is
    /// dropped, and the lease ends what it would have released.
    pub(crate) fn submit(&self, job: Job) {
        let _ = self.jobs.send(job);
    }

    /// Waits until nothing is outstanding.
    pub(crate) async fn idle(&self) {
        loop {
            let idle = self.pending.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.pending.count.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }
}

/// What the reaper's task needs; not the client, which ends when its last handle and guard are gone.
pub(crate) struct Reaping {
    pub(crate) store: Arc<dyn DistributedLock>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) capabilities: Capabilities,
    pub(crate) timeout: Duration,
}

impl Reaping {
    /// The reaper's task: ends when the client is gone and everything is released.
    pub(crate) async fn run(self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let this = Arc::new(self);
        let mut releases = JoinSet::new();
        while let Some(job) = jobs.recv().await {
            match job {
                Job::Drive(driver) => driver.spawn(),
                Job::Release {
                    ticket,
                    before,
                    outstanding,
                } => {
                    while releases.len() >= IN_FLIGHT {
                        releases.join_next().await;
                    }
                    while releases.try_join_next().is_some() {}
                    let this = Arc::clone(&this);
                    releases.spawn(async move {
                        this.release(&ticket, before).await;
                        drop(outstanding);
                    });
                }
            }
        }
        while releases.join_next().await.is_some() {}
    }

    /// Repeats the release until the store answers, refuses it for good, or the lease has ended.
    async fn release(&self, ticket: &Ticket, before: Option<Before>) {
        if let Some(before) = before
            && !before.await
        {
            return;
        }
        let by_lease = self.capabilities.ttl_of == TtlOf::PerHold
            && self.capabilities.ends_by == EndsBy::Lease;
        let ended = self.clock.now() + ticket.ttl + ticket.ttl / 100 + self.timeout;
        let mut errors = 0;
        loop {
            if let Ok(Ok(_)) = timeout(self.timeout, self.store.release(ticket)).await {
                return;
            }
            if by_lease && self.clock.now() >= ended {
                return;
            }
            sleep(retry_delay(errors, fastrand::f64())).await;
            errors += 1;
        }
    }
}
