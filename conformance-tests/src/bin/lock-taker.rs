//! A process that takes locks, so that a case can kill it.

use std::process::ExitCode;
use std::sync::Arc;

use conformance_tests::taker::Writing;
use conformance_tests::{Failure, Outcome, taker};
use etcd_client::{Txn, TxnOp};
use lockkit_core::{DistributedLock, Guard, LockClient};
use lockkit_redis::{Command, Fenced, FencedError};

fn main() -> ExitCode {
    taker::serve_writing(open, write)
}

async fn open(url: &str) -> Outcome<Arc<dyn DistributedLock>> {
    Ok(Arc::clone(lockkit::connect(url).await?.backend()))
}

/// Writes the token where a stale writer would show. On Redis that is the end of a list, where it would
/// stand behind a larger one; on etcd and ZooKeeper a key and a node, where it would take the place of
/// a larger one.
fn write<'a>(client: &'a LockClient, guard: &'a Guard) -> Writing<'a> {
    let token = guard.token().to_string();
    let place = format!("{}/written", guard.name());
    Box::pin(async move {
        if let Some(fenced) = lockkit_etcd::Fenced::by(client, guard) {
            let put = Txn::new().and_then([TxnOp::put(place, token, None)]);
            return match fenced.commit(put).await {
                Ok(_) => Ok(true),
                Err(FencedError::Fenced) => Ok(false),
                Err(other) => Err(other.into()),
            };
        }
        if let Some(fenced) = lockkit_zk::Fenced::by(client, guard) {
            let set = lockkit_zk::Write::set(format!("/{}-written", guard.name()), token);
            return match fenced.write(&[set]).await {
                Ok(_) => Ok(true),
                Err(FencedError::Fenced) => Ok(false),
                Err(other) => Err(other.into()),
            };
        }
        let fenced = Fenced::by(client, guard);
        let fenced = fenced.ok_or_else(|| Failure::new("this store guards no writes"))?;
        let push = Command::new("RPUSH").arg(place).arg(token);
        match fenced.commands(&[push]).await {
            Ok(_) => Ok(true),
            Err(FencedError::Fenced) => Ok(false),
            Err(other) => Err(other.into()),
        }
    })
}
