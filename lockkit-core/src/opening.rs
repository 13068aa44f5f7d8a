//! The first attempt of a local queue, which its first caller makes itself: a free lock costs no task.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::attempt::{AttemptFuture, attempt};
use crate::backend::{Attempt, Ticket};
use crate::clock::Moment;
use crate::core::Core;
use crate::driver::{Driver, Progress, Step};
use crate::error::{Error, Outcome, Result};
use crate::guard::Guard;
use crate::lent::Lent;
use crate::mutants::Mutant;
use crate::reaper::Job;
use crate::table::{Key, Turn, Waiter, Wish};

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
        let mut place = None;
        let turn = self.core.table.enter(&self.key, || {
            let (waiter, behind) = self.waiter();
            place = Some(behind);
            waiter
        });
        match (turn, place) {
            (Turn::Behind(lent), Some(place)) => {
                if let Some(driver) = lent.take() {
                    driver.spawn();
                }
                self.wait(place).await
            }
            _ => self.open().await,
        }
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
        let answer = tokio::select! {
            biased;
            answer = opening.answer() => answer,
            // No time to wait at all is a try: the attempt itself may take as long as a request.
            () = until(self.deadline.filter(|end| *end > self.began)) => return Err(self.too_late()),
        };
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
                    Driver::new(Arc::clone(&self.core), self.key.clone(), None).spawn();
                }
                if self.core.is_closing() {
                    return Err(Error::Shutdown);
                }
                Ok(guard)
            }
            Err(error) if error.outcome() == Outcome::Rejected => {
                // Others who came meanwhile find out for themselves.
                if self.core.table.close_if_idle(&self.key).is_err() {
                    Driver::new(Arc::clone(&self.core), self.key.clone(), None).spawn();
                }
                Err(Error::Backend(error))
            }
            answer => {
                drop(attempting);
                let (waiter, mut place) = self.waiter();
                let step = Step::Answered(answer);
                let progress = Progress { ticket, sent, step };
                let driver = Driver::new(Arc::clone(&self.core), self.key.clone(), Some(progress));
                let lent = Lent::new(driver);
                let alone = self
                    .core
                    .table
                    .first_must_wait(&self.key, waiter, lent.to_others());
                // The timers of another runtime may end before the client does.
                if alone && self.core.runtime.is_current() {
                    place.lent = Some(lent);
                } else if let Some(driver) = lent.take() {
                    driver.spawn();
                }
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
            bounded: self.deadline.is_some(),
            wish: self.wish,
            reply,
        };
        (
            waiter,
            Place {
                core: Arc::clone(&self.core),
                key: self.key.clone(),
                id,
                receiver,
                lent: None,
            },
        )
    }

    async fn wait(self, mut place: Place) -> Result<Guard> {
        let (receiver, lent) = (&mut place.receiver, &place.lent);
        let drive = async {
            match lent {
                Some(lent) => lent.drive(&self.core.reaper).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = &mut *receiver => answer.unwrap_or(Err(Error::Shutdown)),
            never = drive => match never {},
            () = until(self.deadline) => {
                receiver.close();
                // It may have come in this very moment.
                receiver.try_recv().unwrap_or_else(|_| Err(self.too_late()))
            }
        }
    }

    /// What a caller hears whose deadline passed: that others held the lock, or that the store failed.
    fn too_late(&self) -> Error {
        match self.core.table.failure(&self.key) {
            Some(failure) => Error::Backend(failure),
            None => Error::Timeout {
                name: self.key.name.clone(),
                waited: self.began.elapsed(),
            },
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
    /// The driver, while it waits alone.
    lent: Option<Lent>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.core
            .table
            .leave(&self.key, self.id, || self.core.reaper.outstanding());
        // It withdraws the ticket, or serves those who have come meanwhile.
        if let Some(driver) = self.lent.take().and_then(|lent| lent.take()) {
            self.core.reaper.submit(Job::Drive(driver));
        }
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
    async fn answer(&mut self) -> Result<Attempt, crate::BackendError> {
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
            step: Step::InFlight(attempt),
        };
        let driver = Driver::new(Arc::clone(&self.core), self.key.clone(), Some(progress));
        self.core.reaper.submit(Job::Drive(driver));
    }
}
