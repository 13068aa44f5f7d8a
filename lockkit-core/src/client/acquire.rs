//! An acquire that waits. The first caller of a local queue sends the attempt itself, so that a free lock
//! costs no task.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::client::guard::Guard;
use crate::client::hold::{Hold, HoldOptions};
use crate::client::queue::{Key, Waiter};
use crate::client::shared::{Held, Shared};
use crate::client::wait;
use crate::contract::{Error, Result};

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
    pub(crate) async fn run(self) -> Result<Guard> {
        let (shared, mut key) = (Arc::clone(&self.shared), self.key.clone());
        let (reply, receiver) = oneshot::channel();
        let id = shared.next_id();
        let waiter = Waiter {
            id,
            joined: self.began,
            deadline: self.deadline,
            options: self.options,
            reply,
        };
        let first = shared.queues.enter(&mut key, waiter);
        let first = first.ok_or(Error::Shutdown)?;
        let entry = QueueEntry {
            shared,
            key,
            id,
            receiver,
        };
        if first {
            wait::serve(&entry.shared, &entry.key).await;
        }
        self.wait(entry).await
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
