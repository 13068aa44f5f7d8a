//! Takes locks in a process of its own, so that a case can kill it.

use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::{Failure, Outcome, taker};
use lockkit_core::DistributedLock;

fn main() -> ExitCode {
    taker::serve(open)
}

async fn open(url: &str) -> Outcome<Arc<dyn DistributedLock>> {
    #[cfg(unix)]
    if let Some(path) = url.strip_prefix("file:") {
        return Ok(Arc::new(lockkit_core::file::FileStore::new(path)?));
    }
    Err(Failure::new(format!("no store is known at `{url}`")))
}
