//! Takes locks in a process of its own, so that a case can kill it.

use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::{Outcome, taker};
use lockkit_core::DistributedLock;

fn main() -> ExitCode {
    taker::serve(open)
}

async fn open(url: &str) -> Outcome<Arc<dyn DistributedLock>> {
    Ok(Arc::clone(lockkit::connect(url).await?.backend()))
}
