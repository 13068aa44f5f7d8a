//! A section that clients take turns in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use conformance_tests::task::spawn;
use conformance_tests::{Outcome, ensure};
use lockkit_core::Lock;

/// What only one may be in at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section(Arc<AtomicBool>);

impl Section {
    /// Takes the lock this often, and checks that no other client is inside.
    pub(crate) async fn take_turns(self, lock: Lock, turns: u32) -> Outcome {
        for _ in 0..turns {
            let guard = lock.acquire().await?;
            let alone = !self.0.swap(true, Ordering::SeqCst);
            ensure(alone, "two hold the lock at once")?;
            tokio::task::yield_now().await;
            self.0.store(false, Ordering::SeqCst);
            // A hold that was ended on purpose is lost; another turn comes.
            let _ = guard.release().await;
        }
        Ok(())
    }

    /// All take turns at once. Returns when all have had theirs.
    pub(crate) async fn share(&self, locks: &[Lock], turns: u32) -> Outcome {
        let tasks = locks
            .iter()
            .map(|lock| spawn(self.clone().take_turns(lock.clone(), turns)));
        for task in tasks.collect::<Vec<_>>() {
            task.soon().await??;
        }
        Ok(())
    }
}
