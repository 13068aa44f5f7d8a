//! The task of a session: it keeps the lease alive and checks the keys that depend on it.
//!
//! An acknowledged keep-alive proves that the lease exists, but not that a key does: anyone who may write
//! can delete a key. Nor does it tell of a key that a late request has created after its ticket was
//! released, and that the lease would keep for ever. So where the session has holds, or such a request is
//! possible, the task also lists the keys of the lease. A hold without its key is lost. A key without a
//! ticket is deleted.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{GetOptions, LeaseTimeToLiveOptions, Txn, TxnOp};
use lockkit_core::{HolderId, LossReason};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::error::Failed;
use crate::queue::gets;
use crate::session::{Lease, Request};
use crate::shared::Shared;

/// A session with holds sends a keep-alive every `ttl / HELD`.
const HELD: u32 = 5;
/// A session without holds sends a keep-alive every `ttl / IDLE`.
const IDLE: u32 = 2;
/// The next keep-alive follows `ttl / RETRY` after one that failed.
const RETRY: u32 = 20;
/// The number of keys that one transaction reads or deletes.
const PAGE: usize = 100;

/// The task of one session, which ends with it.
pub(crate) struct KeepAlive {
    pub(crate) shared: Arc<Shared>,
    pub(crate) lease: Arc<Lease>,
    /// Deletes keys that belong to no ticket.
    pub(crate) sweep: Option<JoinHandle<()>>,
}

impl KeepAlive {
    pub(crate) async fn run(mut self, mut requested: mpsc::UnboundedReceiver<Request>) {
        let mut next = Instant::now() + self.lease.ttl / HELD;
        loop {
            let mut requests = Vec::new();
            tokio::select! {
                request = requested.recv() => match request {
                    Some(request) => requests.push(request),
                    // The store was dropped. Holds that are left end as if the process had died.
                    None if self.lease.has_tickets() => return,
                    None => break,
                },
                () = sleep_until(next) => {}
            }
            while let Ok(request) = requested.try_recv() {
                requests.push(request);
            }
            if self.lease.end_if_unused() {
                break;
            }
            let held = self.shared.holds(self.lease.id);
            // One that is not active is looked at often: a waiter whose looks come late may be about to use it.
            let is_active = self.lease.is_active();
            let pace = match held.is_empty() && is_active {
                true => IDLE,
                false => HELD,
            };
            next = Instant::now() + self.lease.ttl / pace;
            if requests.is_empty() && !is_active {
                continue;
            }
            let result = match Box::pin(self.confirm(held)).await {
                Ok(keys) => {
                    self.sweep(self.lease.unclaimed(&keys));
                    Ok(())
                }
                Err(Failed::LeaseGone) => {
                    self.shared.session_ended(&self.lease);
                    Ok(())
                }
                Err(Failed::Other(error)) => {
                    next = Instant::now() + self.lease.ttl / RETRY;
                    Err(error)
                }
            };
            for request in requests {
                // A caller that stopped waiting does not need the result.
                drop(request.send(result.clone()));
            }
            if !self.lease.is_alive() {
                return;
            }
        }
        let lease = self.lease.id;
        // If this fails, the lease expires.
        let revoked = self.shared.link.ask(
            "release",
            self.shared.link.request_timeout(),
            |client| async move { client.lease_client().revoke(lease).await },
        );
        drop(revoked.await);
    }

    /// Sends one keep-alive, and lists the keys of the lease where needed. Returns the keys listed.
    async fn confirm(&self, held: Vec<(HolderId, Arc<str>)>) -> Result<Vec<Vec<u8>>, Failed> {
        let (lease, sent) = (self.lease.id, self.lease.clock.now());
        let shared = &self.shared;
        let limit = shared.link.request_timeout().min(self.lease.ttl / 4);
        if held.is_empty() && !self.lease.is_doubtful() {
            self.keep_alive(limit).await?;
            self.lease.confirm(sent);
            return Ok(Vec::new());
        }
        let listed = shared.link.ask("renew", limit, |client| async move {
            let options = LeaseTimeToLiveOptions::new().with_keys();
            let mut client = client.lease_client();
            client.time_to_live(lease, Some(options)).await
        });
        let (kept, listed) = tokio::join!(self.keep_alive(limit), listed);
        let listed = listed?;
        // The server rounds to whole seconds: 0 is less than a second, and only a lease that is gone has
        // less than that.
        if listed.ttl() < 0 {
            return Err(Failed::LeaseGone);
        }
        kept?;
        let keys: HashSet<&[u8]> = listed.keys().iter().map(Vec::as_slice).collect();
        let missing = held
            .into_iter()
            .filter(|(_, key)| !keys.contains(key.as_bytes()));
        // Another server may have acknowledged a key that the leader has not applied yet.
        for page in missing.collect::<Vec<_>>().chunks(PAGE) {
            let options = || Some(GetOptions::new().with_keys_only());
            let reads = page.iter().map(|(_, key)| TxnOp::get(&**key, options()));
            let txn = Txn::new().and_then(Vec::from_iter(reads));
            let answer = shared.link.txn("renew", &txn).await?;
            for ((holder, key), found) in page.iter().zip(gets(answer.op_responses())) {
                if found.count() == 0 {
                    shared.lose(*holder, key, LossReason::Superseded);
                }
            }
        }
        self.lease.confirm(sent);
        Ok(listed.keys().to_vec())
    }

    async fn keep_alive(&self, limit: Duration) -> Result<(), Failed> {
        let lease = self.lease.id;
        let kept = self.shared.link.ask("renew", limit, |client| async move {
            // It fails if the lease has ended.
            client.lease_client().keep_alive(lease).await
        });
        kept.await.map(drop)
    }

    /// Deletes keys that late requests have created. It runs in a task of its own, so that slow deletions
    /// delay no keep-alive.
    fn sweep(&mut self, keys: Vec<Vec<u8>>) {
        let is_busy = |task: &JoinHandle<()>| !task.is_finished();
        if keys.is_empty() || self.sweep.as_ref().is_some_and(is_busy) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        self.sweep = Some(self.shared.runtime.spawn(async move {
            for page in keys.chunks(PAGE) {
                let delete = |key: &Vec<u8>| TxnOp::delete(key.clone(), None);
                let deletions: Vec<TxnOp> = page.iter().map(delete).collect();
                let txn = Txn::new().and_then(deletions);
                // A later keep-alive finds what is left.
                drop(shared.link.txn("sweep", &txn).await);
            }
        }));
    }
}
