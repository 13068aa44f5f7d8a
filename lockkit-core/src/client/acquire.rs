//! An acquire that waits. The first caller of a local queue sends the attempt itself, so that a free lock
//! costs no task.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::client::attempt::Attempting;
use crate::client::guard::Guard;
use crate::client::hold::{Hold, HoldOptions};
use crate::client::outstanding::Outstanding;
use crate::client::queue::{Key, Waiter};
use crate::client::shared::{Held, Shared};
use crate::client::wait;
use crate::contract::{Attempt, BackendError, Error, Outcome, Result};
use crate::time::clock::Moment;

/// A caller that waits for a lock.
pub(crate) struct Acquire {
    pub(crate) shared: Arc<Shared>,
    pub(crate) key: Key,
    pub(crate) options: HoldOptions,
    pub(crate) began: Instant,
    pub(crate) deadline: Option<Instant>,
}

impl Acquire {
    /// Waits for the lock, behind the other callers of this client.
    pub(crate) async fn run(mut self) -> Result<Guard> {
        // A caller on another runtime may end or stand still at any moment: it only waits.
        let attempts = self.shared.context.runtime.is_current();
        // Ends after a guard that is not handed out.
        let unfinished = self.shared.context.attempts.begin();
        let (mut key, mut entry) = (self.key.clone(), None);
        let first = self.shared.queues.enter(&mut key, attempts, |key| {
            let (waiter, behind) = self.waiter(key);
            entry = Some(behind);
            waiter
        });
        let first = first.ok_or(Error::Shutdown)?;
        self.key = key;
        let Some(entry) = entry else {
            return self.attempt(unfinished).await;
        };
        drop(unfinished);
        if first {
            wait::start(&self.shared, &self.key, None);
        }
        self.wait(entry).await
    }

    /// Attempts for the queue.
    async fn attempt(self, unfinished: Outstanding) -> Result<Guard> {
        let shared = &self.shared;
        let context = &shared.context;
        let ticket = shared.ticket(&self.key, true);
        let mut first = FirstAttempt {
            shared: Arc::clone(shared),
            key: self.key.clone(),
            attempt: Some(Attempting::new(context, ticket.clone(), None)),
        };
        let (sent, answer) = first.answer().await;
        drop(first);
        if let Ok(Attempt::Granted(grant)) = answer
            && let Some(since) = context.since(&grant, sent)
        {
            let held = Held::begin(shared, ticket, grant, since, self.options, None);
            let guard = Guard::new(held);
            self.serve_others();
            if shared.is_closing() {
                return Err(Error::Shutdown);
            }
            return Ok(guard);
        }
        if let Err(error) = &answer
            && error.outcome() == Outcome::Rejected
        {
            self.serve_others();
            return Err(error.clone().into());
        }
        let (waiter, entry) = self.waiter(&self.key);
        shared.queues.first_waits(&self.key, waiter);
        if shared.is_closing() {
            // The withdrawal of the ticket is unfinished work again.
            shared.queues.close();
        }
        // Only now: a shutdown that waits for attempts finds the withdrawal.
        drop(unfinished);
        let attempt = Attempting {
            ticket,
            sent,
            answer: Box::pin(async { answer }),
        };
        wait::start(shared, &self.key, Some(attempt));
        self.wait(entry).await
    }

    /// Callers that came meanwhile find out for themselves.
    fn serve_others(&self) {
        if self.shared.queues.close_if_idle(&self.key).is_err() {
            wait::start(&self.shared, &self.key, None);
        }
    }

    fn waiter(&self, key: &Key) -> (Waiter, QueueEntry) {
        let (reply, receiver) = oneshot::channel();
        let id = self.shared.next_id();
        let waiter = Waiter {
            id,
            joined: self.began,
            deadline: self.deadline,
            options: self.options,
            reply,
        };
        let entry = QueueEntry {
            shared: Arc::clone(&self.shared),
            key: key.clone(),
            id,
            receiver,
        };
        (waiter, entry)
    }

    /// Waits for the answer of the task that serves the queue, which keeps the deadline. What is counted
    /// here is for a client whose runtime stands still.
    async fn wait(&self, mut entry: QueueEntry) -> Result<Guard> {
        let context = &self.shared.context;
        let end = self
            .deadline
            .and_then(|end| end.checked_add(context.timeout));
        let hold = tokio::select! {
            biased;
            answer = &mut entry.receiver => answer.unwrap_or(Err(Error::Shutdown))?,
            () = until(end) => {
                // It may have come in this very moment.
                let no_answer = context.timed_out("attempt", context.timeout);
                entry.close().unwrap_or(Err(no_answer.into()))?
            }
        };
        Ok(entry.guard(hold))
    }
}

/// Waits until a deadline, or for ever.
pub(crate) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// An entry in a local queue; dropping it leaves the queue. INV-7.
struct QueueEntry {
    shared: Arc<Shared>,
    key: Key,
    id: u64,
    receiver: oneshot::Receiver<Result<Arc<Hold>>>,
}

impl QueueEntry {
    /// Refuses an answer from now on; returns the one that came before.
    fn close(&mut self) -> Option<Result<Arc<Hold>>> {
        self.receiver.close();
        self.receiver.try_recv().ok()
    }

    fn guard(&self, hold: Arc<Hold>) -> Guard {
        let shared = Arc::clone(&self.shared);
        Guard::new(Held { shared, hold })
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        self.shared.queues.leave(&self.key, self.id);
        if let Some(Ok(hold)) = self.close() {
            // Dropped at once, it releases.
            drop(self.guard(hold));
        }
    }
}

/// An attempt in flight for a local queue. Dropping it starts the task that serves the queue, because
/// the ticket belongs to the queue and not to its first caller.
struct FirstAttempt {
    shared: Arc<Shared>,
    key: Key,
    attempt: Option<Attempting>,
}

impl FirstAttempt {
    async fn answer(&mut self) -> (Moment, Result<Attempt, BackendError>) {
        let answer = match &mut self.attempt {
            Some(attempt) => (attempt.sent, (&mut attempt.answer).await),
            None => std::future::pending().await,
        };
        self.attempt = None;
        answer
    }
}

impl Drop for FirstAttempt {
    fn drop(&mut self) {
        let Some(attempt) = self.attempt.take() else {
            return;
        };
        self.shared.queues.first_left(&self.key);
        wait::start(&self.shared, &self.key, Some(attempt));
    }
}
