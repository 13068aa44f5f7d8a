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

/// Waits for the lock, behind the other callers of this client, until the deadline of a call that began then.
pub(crate) async fn acquire(
    shared: &Arc<Shared>,
    mut key: Key,
    options: HoldOptions,
    began: Instant,
    deadline: Option<Instant>,
) -> Result<Guard> {
    let (reply, receiver) = oneshot::channel();
    let id = shared.next_id();
    let waiter = Waiter {
        id,
        joined: began,
        deadline,
        options,
        reply,
    };
    let first = shared.queues.enter(&mut key, waiter);
    let first = first.ok_or(Error::Shutdown)?;
    let mut entry = QueueEntry {
        shared: Arc::clone(shared),
        key,
        id,
        receiver,
    };
    if first {
        wait::serve(shared, &entry.key).await;
    }
    // The task that serves the queue keeps the deadline. What is counted here is for a client whose runtime stands
    // still.
    let context = &shared.context;
    let end = deadline.and_then(|end| end.checked_add(context.timeout));
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
