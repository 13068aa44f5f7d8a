//! Pins: a session of the client, which holds an advisory lock, proves that the client is alive.
//!
//! A pinned hold is a lease whose row has the key of that session. While the session lives, the lease
//! alone counts. When it has ended, the next client that wants the lock shortens the lease, so that the
//! lock of a crashed client is free soon. The client itself learns that its session has ended, and gives
//! up all holds that were granted with it, before a shortened lease ends.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use lockkit_core::contract::{Wake, Watch};
use lockkit_core::store::lock;
use lockkit_core::{BackendError, HolderId, LossReason};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A connection that holds an advisory lock. Dropped, it is closed, which frees the lock.
#[async_trait]
pub(crate) trait Session: Send + 'static {
    /// The key of its advisory lock. No other session has ever had it.
    fn key(&self) -> i64;

    /// Returns when the session has ended.
    async fn ended(&mut self);
}

/// What is known of a session.
#[derive(Debug)]
pub(crate) struct Proof {
    pub(crate) key: i64,
    ended: AtomicBool,
}

/// The session of a store, and the holds that were granted with it.
#[derive(Default)]
pub(crate) struct Pins {
    /// Locked while a session is opened: all attempts wait for the same one.
    current: tokio::sync::Mutex<Option<Current>>,
    holds: Arc<Holds>,
}

struct Current {
    proof: Arc<Proof>,
    /// The task that has the connection.
    _task: JoinSet<()>,
}

#[derive(Default)]
struct Holds {
    sessions: Mutex<HashMap<HolderId, Arc<Proof>>>,
    /// Changes whenever a session ends.
    ended: watch::Sender<()>,
}

/// Ends a session when it is dropped: also when the runtime stops the task.
struct End(Arc<Proof>, Arc<Holds>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
        self.1.ended.send_replace(());
    }
}

impl Proof {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

impl Pins {
    /// The session of the store; opens one if there is none.
    pub(crate) async fn session<S: Session>(
        &self,
        open: impl Future<Output = Result<S, BackendError>>,
    ) -> Result<Arc<Proof>, BackendError> {
        let mut current = self.current.lock().await;
        if let Some(current) = &*current
            && !current.proof.has_ended()
        {
            return Ok(Arc::clone(&current.proof));
        }
        let mut session = open.await?;
        let proof = Arc::new(Proof {
            key: session.key(),
            ended: AtomicBool::new(false),
        });
        let end = End(Arc::clone(&proof), Arc::clone(&self.holds));
        let mut task = JoinSet::new();
        task.spawn(async move {
            session.ended().await;
            drop(end);
        });
        *current = Some(Current {
            proof: Arc::clone(&proof),
            _task: task,
        });
        Ok(proof)
    }

    /// Notes a hold that was granted with a session. Returns `false` if the session has ended since.
    pub(crate) fn granted(&self, holder: HolderId, session: Arc<Proof>) -> bool {
        let ended = session.has_ended();
        self.holds.lock().insert(holder, session);
        !ended
    }

    pub(crate) fn released(&self, holder: HolderId) {
        self.holds.lock().remove(&holder);
    }

    /// The number of pinned holds.
    pub(crate) fn count(&self) -> usize {
        self.holds.lock().len()
    }

    /// Adds the end of the session to the wake-ups of a ticket.
    pub(crate) fn watch(&self, holder: HolderId, inner: Option<Box<dyn Watch>>) -> Box<dyn Watch> {
        Box::new(PinWatch {
            holder,
            ended: self.holds.ended.subscribe(),
            holds: Arc::clone(&self.holds),
            inner,
        })
    }
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, HashMap<HolderId, Arc<Proof>>> {
        lock(&self.sessions)
    }

    fn is_lost(&self, holder: HolderId) -> bool {
        let sessions = self.lock();
        sessions.get(&holder).is_some_and(|it| it.has_ended())
    }
}

impl fmt::Debug for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pins")
            .field("holds", &self.count())
            .finish_non_exhaustive()
    }
}

struct PinWatch {
    holder: HolderId,
    holds: Arc<Holds>,
    ended: watch::Receiver<()>,
    inner: Option<Box<dyn Watch>>,
}

#[async_trait]
impl Watch for PinWatch {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        loop {
            if self.holds.is_lost(self.holder) {
                return Ok(Wake::Lost(LossReason::SessionEnded));
            }
            let inner = async {
                match &mut self.inner {
                    Some(inner) => inner.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // `holds` keeps the sender, so that this ends only when a session has ended.
                _ = self.ended.changed() => {}
                wake = inner => return wake,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lockkit_core::ClientId;
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    struct Fake(i64, oneshot::Receiver<()>);

    #[async_trait]
    impl Session for Fake {
        fn key(&self) -> i64 {
            self.0
        }

        async fn ended(&mut self) {
            let _ = (&mut self.1).await;
        }
    }

    #[tokio::test]
    async fn end_of_session_loses_its_holds_only() {
        let pins = Pins::default();
        let holder = |n| HolderId::new(ClientId::random(), n);
        let (first, second, waiter) = (holder(1), holder(2), holder(3));
        let (end, ended) = oneshot::channel();
        let session = pins.session(async { Ok(Fake(1, ended)) }).await.unwrap();
        let mut lost = pins.watch(first, None);
        assert!(pins.granted(first, Arc::clone(&session)));
        drop(end);
        let wake = timeout(Duration::from_secs(10), lost.changed()).await;
        assert_eq!(wake.unwrap().unwrap(), Wake::Lost(LossReason::SessionEnded));
        assert!(
            !pins.granted(waiter, session),
            "granted with a session that has ended"
        );

        let (_end, ended) = oneshot::channel();
        let next = pins.session(async { Ok(Fake(2, ended)) }).await.unwrap();
        assert_eq!(next.key, 2);
        assert!(pins.granted(second, next));
        let mut kept = pins.watch(second, None);
        let wake = timeout(Duration::from_millis(50), kept.changed()).await;
        assert!(wake.is_err(), "{wake:?}");
        pins.released(first);
        assert_eq!(pins.count(), 2);
    }
}
