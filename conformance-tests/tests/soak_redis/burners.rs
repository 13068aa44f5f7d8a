//! Something else that the machine has to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, available_parallelism, spawn};

/// As many busy threads as there are processors, until it is dropped.
pub(crate) struct Burners {
    done: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burners {
    pub(crate) fn start() -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let count = available_parallelism().map_or(2, usize::from);
        let burn = || {
            let done = Arc::clone(&done);
            spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = (0..count).map(|_| burn()).collect();
        Self { done, threads }
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It cannot panic.
            drop(thread.join());
        }
    }
}
