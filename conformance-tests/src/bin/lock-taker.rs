//! Takes locks in a process of its own, so that a case can kill it.

use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::taker::Writing;
use conformance_tests::{Failure, Outcome, taker};
use lockkit_core::{DistributedLock, Guard, LockClient};
use lockkit_redis::{Command, Fenced, FencedError};

fn main() -> ExitCode {
    taker::serve_writing(open, write)
}

async fn open(url: &str) -> Outcome<Arc<dyn DistributedLock>> {
    Ok(Arc::clone(lockkit::connect(url).await?.backend()))
}

/// Adds the token to the end of a list: that of a stale writer would stand behind a larger one.
fn write<'a>(client: &'a LockClient, guard: &'a Guard) -> Writing<'a> {
    Box::pin(async move {
        let fenced = Fenced::by(client, guard);
        let fenced = fenced.ok_or_else(|| Failure::new("this store guards no writes"))?;
        let push = Command::new("RPUSH")
            .arg(format!("{}/written", guard.name()))
            .arg(guard.token().to_string());
        match fenced.commands(&[push]).await {
            Ok(_) => Ok(true),
            Err(FencedError::Fenced) => Ok(false),
            Err(other) => Err(other.into()),
        }
    })
}
