//! The first attempt of a local queue, which its first caller makes itself: a free lock costs no task.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::client::attempt::{AttemptFuture, attempt};
use crate::client::guard::Guard;
use crate::client::queue::{Key, Waiter, Wish};
use crate::client::shared::Core;
use crate::client::wait::{self, Progress};
use crate::contract::error::{BackendError, Error, Outcome, Result};
use crate::contract::{Attempt, Ticket};
use crate::mutants::Mutant;
use crate::time::clock::Moment;

/// A caller that waits for a lock.
pub(crate) struct Caller {
    pub(crate) core: Arc<Core>,
    pub(crate) key: Key,
    pub(crate) wish: Wish,
    pub(crate) began: Instant,
    pub(crate) deadline: Option<Instant>,
}

impl Caller {
    /// Waits for the lock, behind the other callers of this client.
    pub(crate) async fn acquire(self) -> Result<Guard> {
        // A caller on another runtime may end or stand still at any moment: it only waits.
        let attempts = self.core.runtime.is_current();
        let mut place = None;
        let first = self.core.table.enter(&self.key, attempts, || {
            let (waiter, behind) = self.waiter();
            place = Some(behind);
            waiter
        });
        let Some(place) = place else {
            return self.open().await;
        };
        if first {
            wait::start(&self.core, &self.key, None);
        }
        self.wait(place).await
    }

    /// Attempts for the queue.
    async fn open(self) -> Result<Guard> {
        // Ends after a guard that is not handed out.
        let attempting = self.core.reaper.attempting();
        let ticket = self.core.ticket(&self.key, true);
        let mut opening = Opening {
            core: Arc::clone(&self.core),
            key: self.key.clone(),
            sent: self.core.clock.now(),
            attempt: Some(attempt(&self.core, &ticket)),
            ticket,
        };
        let answer = opening.answer().await;
        let (ticket, sent) = (opening.ticket.clone(), opening.sent);
        drop(opening);
        match answer {
            Ok(Attempt::Granted(grant))
                if self.core.believes(&grant, self.core.since(&grant, sent)) =>
            {
                let since = self.core.since(&grant, sent);
                let others = self.core.table.first_got_it(&self.key);
                let guard = Guard::begin(&self.core, ticket, grant, since, self.wish, None);
                if others {
                    wait::start(&self.core, &self.key, None);
                }
                if self.core.is_closing() {
                    return Err(Error::Shutdown);
                }
                Ok(guard)
            }
            Err(error) if error.outcome() == Outcome::Rejected => {
                // Others who came meanwhile find out for themselves.
                if self.core.table.close_if_idle(&self.key).is_err() {
                    wait::start(&self.core, &self.key, None);
                }
                Err(Error::Backend(error))
            }
            answer => {
                drop(attempting);
                let (waiter, place) = self.waiter();
                self.core.table.first_must_wait(&self.key, waiter);
                let attempt: AttemptFuture = Box::pin(async { answer });
                let progress = Progress {
                    ticket,
                    sent,
                    attempt,
                };
                wait::start(&self.core, &self.key, Some(progress));
                self.wait(place).await
            }
        }
    }

    fn waiter(&self) -> (Waiter, Place) {
        let (reply, receiver) = oneshot::channel();
        let id = self.core.next_id();
        let waiter = Waiter {
            id,
            joined: self.began,
            deadline: self.deadline,
            wish: self.wish,
            reply,
        };
        let place = Place {
            core: Arc::clone(&self.core),
            key: self.key.clone(),
            id,
            receiver,
        };
        (waiter, place)
    }

    /// Waits for the driver's answer. It keeps the deadline; what is counted here is that of a
    /// client whose runtime stands still.
    async fn wait(self, mut place: Place) -> Result<Guard> {
        let limit = self.core.timeout;
        let end = self.deadline.and_then(|end| end.checked_add(limit));
        tokio::select! {
            biased;
            answer = &mut place.receiver => answer.unwrap_or(Err(Error::Shutdown)),
            () = until(end) => {
                place.receiver.close();
                // It may have come in this very moment.
                place.receiver.try_recv().unwrap_or_else(|_| {
                    Err(BackendError::timeout(self.core.store.backend(), "attempt", limit).into())
                })
            }
        }
    }
}

/// Waits until a deadline, or for ever.
pub(crate) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A place in a local queue; dropping it gives the place up. INV-7.
struct Place {
    core: Arc<Core>,
    key: Key,
    id: u64,
    receiver: oneshot::Receiver<Result<Guard>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.core
            .table
            .leave(&self.key, self.id, || self.core.reaper.outstanding());
    }
}

/// An attempt in flight for a local queue; dropping it hands the attempt to a driver, because the
/// ticket belongs to the queue and not to its first caller.
struct Opening {
    core: Arc<Core>,
    key: Key,
    ticket: Ticket,
    sent: Moment,
    attempt: Option<AttemptFuture>,
}

impl Opening {
    async fn answer(&mut self) -> Result<Attempt, BackendError> {
        let answer = match &mut self.attempt {
            Some(attempt) => attempt.await,
            None => std::future::pending().await,
        };
        self.attempt = None;
        answer
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let Some(attempt) = self.attempt.take() else {
            return;
        };
        if self.core.broken.is(Mutant::CancelLeavesTicket) {
            self.core.table.abandon(&self.key);
            return;
        }
        self.core
            .table
            .first_left(&self.key, self.core.reaper.outstanding());
        let progress = Progress {
            ticket: self.ticket.clone(),
            sent: self.sent,
            attempt,
        };
        wait::start(&self.core, &self.key, Some(progress));
    }
}
