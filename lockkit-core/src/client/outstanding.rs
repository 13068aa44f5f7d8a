//! Counts what a client has not finished, for `drain` and `shutdown`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// A count that can be waited for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    count: AtomicUsize,
    idle: Notify,
}

/// Counts as unfinished work for as long as it lives.
#[derive(Debug)]
pub(crate) struct Outstanding(Arc<Count>);

impl Pending {
    pub(crate) fn begin(&self) -> Outstanding {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        Outstanding(Arc::clone(&self.0))
    }

    /// Waits until nothing is counted.
    pub(crate) async fn none(&self) {
        loop {
            let idle = self.0.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if self.0.count.load(Ordering::Acquire) == 0 {
                return;
            }
            idle.await;
        }
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
