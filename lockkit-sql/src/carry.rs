//! Requests that end although whoever made them does not poll them any more.
//!
//! A caller may keep a future and turn to something else. The request in it would keep its connection,
//! and everybody else would wait for that. A task for each request would end it, at the price of two
//! changes of thread, so a request gets one only where there is somebody to be kept waiting: whoever
//! finds no connection free carries along the requests that have them.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared, join_all};
use tokio::task::JoinSet;

/// A request that leaves its answer elsewhere.
type Request = BoxFuture<'static, ()>;

/// More than the requests that are carried out at a time: ended ones are forgotten then.
const MANY: usize = 32;

/// The requests of one store that run without a task of their own.
#[derive(Default)]
pub(crate) struct Carrier {
    bare: Mutex<Vec<WeakShared<Request>>>,
}

impl Carrier {
    /// Carries out a request; `None` if it panicked. `room`: whether a connection is free for it.
    ///
    /// The first thing that it does must be to ask for its connection.
    ///
    /// # Cancel safety
    /// Dropped, it takes the request with it, unless another carries it along.
    pub(crate) fn carry<T: Send + 'static>(
        self: &Arc<Self>,
        room: bool,
        request: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = Option<T>> + Send {
        // Before anybody waits for it: what is large in one who waits is copied with each who waits for
        // him.
        let request = request.boxed();
        async move {
            if room {
                self.bare(request).await
            } else {
                self.tasked(request).await
            }
        }
    }

    async fn bare<T: Send + 'static>(&self, request: BoxFuture<'static, T>) -> Option<T> {
        let answer = Arc::new(Mutex::new(None));
        let place = Arc::clone(&answer);
        let request: Request = Box::pin(async move {
            let done = request.await;
            *lock(&place) = Some(done);
        });
        let request = request.shared();
        // Known to others before it can have anything that they wait for.
        if let Some(known) = request.downgrade() {
            let mut bare = lock(&self.bare);
            if bare.len() >= MANY {
                bare.retain(|known| known.upgrade().is_some());
            }
            bare.push(known);
        }
        request.await;
        lock(&answer).take()
    }

    async fn tasked<T: Send + 'static>(
        self: &Arc<Self>,
        request: BoxFuture<'static, T>,
    ) -> Option<T> {
        let carrier = Arc::clone(self);
        let mut running = JoinSet::new();
        running.spawn(async move {
            // Looked at when the request has its place in the line: whoever comes later stands behind.
            let carry = async {
                let known: Vec<Shared<Request>> = {
                    let bare = lock(&carrier.bare);
                    bare.iter().filter_map(WeakShared::upgrade).collect()
                };
                join_all(known).await;
                std::future::pending().await
            };
            tokio::select! {
                biased;
                answer = request => answer,
                answer = carry => answer,
            }
        });
        running.join_next().await?.ok()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::Semaphore;
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;

    /// What requests go through.
    struct Ways {
        /// The only connection.
        line: Semaphore,
        /// What they wait for once they have it: closed at first.
        gate: Semaphore,
    }

    impl Ways {
        fn new() -> Arc<Self> {
            let (line, gate) = (Semaphore::new(1), Semaphore::new(0));
            Arc::new(Self { line, gate })
        }

        async fn request(self: Arc<Self>) -> u8 {
            let _place = self.line.acquire().await;
            let _passed = self.gate.acquire().await;
            7
        }
    }

    #[tokio::test]
    async fn a_request_that_nobody_polls_keeps_no_other_waiting() {
        let (carrier, ways) = (Arc::new(Carrier::default()), Ways::new());
        let mut left = Box::pin(carrier.carry(true, Arc::clone(&ways).request()));
        let polled = (&mut left).now_or_never();
        assert!(polled.is_none() && ways.line.available_permits() == 0);
        ways.gate.add_permits(1);
        for _ in 0..3 {
            let other = carrier.carry(false, Arc::clone(&ways).request());
            let answer = timeout(Duration::from_secs(10), other).await;
            assert_eq!(answer, Ok(Some(7)));
        }
        assert_eq!(left.await, Some(7));
    }

    #[tokio::test]
    async fn a_caller_who_goes_takes_the_request_along() {
        let (carrier, ways) = (Arc::new(Carrier::default()), Ways::new());
        for room in [true, false] {
            let mut left = Box::pin(carrier.carry(room, Arc::clone(&ways).request()));
            let polled = (&mut left).now_or_never();
            // Its task, if it has one, begins.
            yield_now().await;
            assert!(polled.is_none() && ways.line.available_permits() == 0);
            drop(left);
            let free = timeout(Duration::from_secs(10), ways.line.acquire()).await;
            assert!(free.is_ok());
        }
    }

    #[tokio::test]
    async fn what_has_ended_is_forgotten() {
        let (carrier, ways) = (Arc::new(Carrier::default()), Ways::new());
        ways.gate.add_permits(1);
        for _ in 0..3 * MANY {
            let answer = carrier.carry(true, Arc::clone(&ways).request()).await;
            assert_eq!(answer, Some(7));
        }
        assert!(lock(&carrier.bare).len() <= MANY);
    }
}
