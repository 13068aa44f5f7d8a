//! Releases what nobody holds any more, in the background: tickets of dropped guards, of lost holds
//! and of cancelled acquires.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::backend::{DistributedLock, Ticket};
use crate::clock::{Clock, Moment};
use crate::driver::Driver;
use crate::sync::lock;
use crate::waiter::{jitter, retry_delay};

/// At most this many releases are in flight at once.
const IN_FLIGHT: usize = 256;

/// Carries on a request whose caller has gone; answers whether the ticket is still to be released.
pub(crate) type Before = Pin<Box<dyn Future<Output = bool> + Send>>;

pub(crate) enum Job {
    /// Release a ticket, after what is still in flight for it.
    Release(Retired),
    /// Go on with a local queue whose first caller has gone.
    Drive(Driver),
}

/// A ticket that is to be released.
pub(crate) struct Retired {
    pub(crate) ticket: Ticket,
    pub(crate) before: Option<Before>,
    /// When its lease must have ended, if nobody renews it; the release is given up then. `None`
    /// where the lease is not the ticket's own.
    pub(crate) ends: Option<Moment>,
    pub(crate) outstanding: Outstanding,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Release(retired) => f.debug_tuple("Release").field(&retired.ticket).finish(),
            Self::Drive(_) => f.write_str("Drive"),
        }
    }
}

/// The client's end of the reaper.
#[derive(Debug)]
pub(crate) struct Reaper {
    jobs: mpsc::UnboundedSender<Job>,
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
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Job>) {
        let (jobs, receiver) = mpsc::unbounded_channel();
        (
            Self {
                jobs,
                pending: Arc::default(),
                attempts: Arc::default(),
            },
            receiver,
        )
    }

    pub(crate) fn outstanding(&self) -> Outstanding {
        Pending::add(&self.pending)
    }

    /// Counts an attempt until its hold has begun, or what it leaves is outstanding.
    pub(crate) fn attempting(&self) -> Outstanding {
        Pending::add(&self.attempts)
    }

    /// Hands a job over. Never blocks, spawns or panics (INV-8); without a runtime the job is
    /// dropped, and the lease ends what it would have released.
    pub(crate) fn submit(&self, job: Job) {
        let _ = self.jobs.send(job);
    }

    /// Whether its task has ended with the client's runtime.
    pub(crate) fn is_gone(&self) -> bool {
        self.jobs.is_closed()
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

/// What the reaper's task needs; not the client, which ends when its last handle and guard are gone.
pub(crate) struct Reaping {
    pub(crate) store: Arc<dyn DistributedLock>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timeout: Duration,
    pub(crate) random: Mutex<Rng>,
}

impl Reaping {
    fn jitter(&self) -> f64 {
        jitter(&mut lock(&self.random))
    }

    /// The reaper's task: ends when the client is gone and everything is released.
    pub(crate) async fn run(self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let this = Arc::new(self);
        let mut releases = JoinSet::new();
        while let Some(job) = jobs.recv().await {
            match job {
                Job::Drive(driver) => driver.spawn(),
                Job::Release(retired) => {
                    while releases.len() >= IN_FLIGHT {
                        releases.join_next().await;
                    }
                    while releases.try_join_next().is_some() {}
                    let this = Arc::clone(&this);
                    releases.spawn(async move {
                        let _outstanding = retired.outstanding;
                        this.release(&retired.ticket, retired.before, retired.ends)
                            .await;
                    });
                }
            }
        }
        while releases.join_next().await.is_some() {}
    }

    /// Repeats the release until the store answers, or the lease has ended.
    async fn release(&self, ticket: &Ticket, before: Option<Before>, ends: Option<Moment>) {
        if let Some(before) = before
            && !before.await
        {
            return;
        }
        let mut errors = 0;
        while ends.is_none_or(|ends| self.clock.now() < ends) {
            if let Ok(Ok(_)) = timeout(self.timeout, self.store.release(ticket)).await {
                return;
            }
            sleep(retry_delay(errors, self.jitter())).await;
            errors += 1;
        }
    }
}
