//! The task of a session: its beats, and the look at the keys that stand on its lease.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    GetOptions, LeaseKeepAliveStream, LeaseKeeper, LeaseTimeToLiveOptions, Txn, TxnOp,
    TxnOpResponse,
};
use lockkit_core::LossReason;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Answer, BEAT, IDLE_BEAT, PAGE, Phase, RETRY, Shared};
use crate::desk::Desk;
use crate::error::Failed;
use crate::link::Link;

/// Ends with the session.
pub(super) struct Heart {
    pub(super) shared: Arc<Shared>,
    pub(super) link: Arc<Link>,
    pub(super) desk: Arc<Desk>,
    pub(super) runtime: Handle,
    /// Deletes keys that no ticket claims.
    pub(super) sweeping: Option<JoinHandle<()>>,
    /// The stream of the last keep-alive: another one on it is cheaper for the server than a new stream.
    pub(super) keeping: Option<(LeaseKeeper, LeaseKeepAliveStream)>,
}

impl Heart {
    pub(super) async fn run(mut self, mut asked: mpsc::UnboundedReceiver<Answer>) {
        let mut next = Instant::now() + self.shared.ttl / BEAT;
        loop {
            let mut askers = Vec::new();
            tokio::select! {
                asker = asked.recv() => match asker {
                    Some(asker) => askers.push(asker),
                    None => {
                        // The store was dropped. What still stands ends as if the process had died.
                        if self.shared.lock().tickets > 0 {
                            return;
                        }
                        break;
                    }
                },
                () = sleep_until(next) => {}
            }
            while let Ok(asker) = asked.try_recv() {
                askers.push(asker);
            }
            if self.is_unused() {
                break;
            }
            next = Instant::now() + self.shared.ttl / self.pace();
            let active = self.shared.lock().active_until > Instant::now();
            if askers.is_empty() && !active {
                continue;
            }
            let (outcome, unclaimed) = match Box::pin(self.beat()).await {
                Ok(unclaimed) => (Ok(()), unclaimed),
                Err(Failed::LeaseGone) => {
                    self.shared.lock().phase = Phase::Ended;
                    self.desk.session_ended(self.shared.lease);
                    (Ok(()), Vec::new())
                }
                Err(Failed::Other(error)) => {
                    next = Instant::now() + self.shared.ttl / RETRY;
                    (Err(error), Vec::new())
                }
            };
            for asker in askers {
                // Whoever does not wait any more need not know.
                drop(asker.send(outcome.clone()));
            }
            if self.shared.lock().phase == Phase::Ended {
                return;
            }
            self.sweep(unclaimed);
        }
        let (lease, limit) = (self.shared.lease, self.link.request_timeout());
        // If this fails, the lease ends by itself.
        let revoked = self.link.ask("release", limit, |client| async move {
            client.lease_client().revoke(lease).await
        });
        drop(revoked.await);
    }

    /// How much of a lease is between two beats: more where nothing is held that could be lost.
    fn pace(&self) -> u32 {
        match self.desk.held(self.shared.lease).is_empty() {
            true => IDLE_BEAT,
            false => BEAT,
        }
    }

    /// Whether nobody has needed the session for a while; then nobody gets it any more.
    fn is_unused(&self) -> bool {
        let mut state = self.shared.lock();
        if state.tickets == 0 && state.idle_since + self.shared.ttl <= Instant::now() {
            state.phase = Phase::Closing;
            return true;
        }
        false
    }

    /// One keep-alive, and one look at the keys where there are holds, or there is doubt. Answers the keys
    /// that no ticket claims.
    async fn beat(&mut self) -> Result<Vec<Vec<u8>>, Failed> {
        let lease = self.shared.lease;
        let limit = self.link.request_timeout().min(self.shared.ttl / 4);
        let held = self.desk.held(lease);
        let sent = self.shared.clock.now();
        let looks = !held.is_empty() || self.shared.lock().doubtful;
        let link = Arc::clone(&self.link);
        let kept = self.keep_alive(limit);
        let looked = link.ask("renew", limit, |client| async move {
            let options = LeaseTimeToLiveOptions::new().with_keys();
            client
                .lease_client()
                .time_to_live(lease, Some(options))
                .await
        });
        let (kept, looked) = if looks {
            tokio::join!(kept, async { looked.await.map(Some) })
        } else {
            (kept.await, Ok(None))
        };
        let Some(looked) = looked? else {
            kept?;
            self.shared.confirmed(sent);
            return Ok(Vec::new());
        };
        // Whole seconds are told: less than one that is left is a zero, and only what is gone is less.
        if looked.ttl() < 0 {
            return Err(Failed::LeaseGone);
        }
        kept?;
        let keys: HashSet<&[u8]> = looked.keys().iter().map(Vec::as_slice).collect();
        let missing = held
            .into_iter()
            .filter(|(_, key)| !keys.contains(key.as_bytes()));
        // The leader may not have applied yet what another server has acknowledged: read to be sure.
        for page in missing.collect::<Vec<_>>().chunks(PAGE) {
            let there = self.read(page.iter().map(|(_, key)| &**key)).await?;
            for ((holder, key), there) in page.iter().zip(there) {
                if !there {
                    self.desk.lose(*holder, key, LossReason::Superseded);
                }
            }
        }
        self.shared.confirmed(sent);
        Ok(self.desk.unclaimed(&self.shared, lease, looked.keys()))
    }

    async fn keep_alive(&mut self, limit: Duration) -> Result<(), Failed> {
        let lease = self.shared.lease;
        if let Some((mut keeper, mut answers)) = self.keeping.take() {
            let again = async {
                keeper.keep_alive().await?;
                answers.message().await
            };
            if let Ok(Ok(Some(answer))) = timeout(limit / 2, again).await {
                if answer.ttl() <= 0 {
                    return Err(Failed::LeaseGone);
                }
                self.keeping = Some((keeper, answers));
                return Ok(());
            }
            // The stream has ended, or its connection is dead.
        }
        let opened = self.link.ask("renew", limit, |client| async move {
            // The first message of the stream is a keep-alive; a lease that has ended is an error.
            client.lease_client().keep_alive(lease).await
        });
        self.keeping = Some(opened.await?);
        Ok(())
    }

    /// Whether each key is there.
    async fn read(&self, keys: impl Iterator<Item = &str>) -> Result<Vec<bool>, Failed> {
        let options = || Some(GetOptions::new().with_keys_only());
        let gets: Vec<TxnOp> = keys.map(|key| TxnOp::get(key, options())).collect();
        let txn = Txn::new().and_then(gets);
        let limit = self.link.request_timeout();
        let answer = self.link.ask("renew", limit, |client| {
            let txn = txn.clone();
            async move { client.kv_client().txn(txn).await }
        });
        let there = |answer| matches!(answer, TxnOpResponse::Get(get) if get.count() > 0);
        Ok(answer
            .await?
            .op_responses()
            .into_iter()
            .map(there)
            .collect())
    }

    /// Deletes keys that late requests have put there, in a task of its own: no beat waits for it.
    fn sweep(&mut self, keys: Vec<Vec<u8>>) {
        let busy = |task: &JoinHandle<()>| !task.is_finished();
        if keys.is_empty() || self.sweeping.as_ref().is_some_and(busy) {
            return;
        }
        let link = Arc::clone(&self.link);
        self.sweeping = Some(self.runtime.spawn(async move {
            for page in keys.chunks(PAGE) {
                let deletions: Vec<TxnOp> = page
                    .iter()
                    .map(|key| TxnOp::delete(key.clone(), None))
                    .collect();
                let txn = Txn::new().and_then(deletions);
                let deleted = link.ask("sweep", link.request_timeout(), |client| {
                    let txn = txn.clone();
                    async move { client.kv_client().txn(txn).await }
                });
                // What is not deleted now is found by a later beat.
                drop(deleted.await);
            }
        }));
    }
}
