//! Requests that end although whoever made them does not poll them any more.
//!
//! A caller may keep a future and turn to something else. The request in it would keep its connection,
//! and everybody else would wait for that. A task for each request would end it, at the price of two
//! changes of thread, so a request gets one only where there is somebody to be kept waiting: whoever
//! finds no connection free carries along the requests that have them.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use tokio::task::JoinSet;

/// More than the requests that are carried out at a time: ended ones are forgotten then.
const MANY: usize = 32;

/// The requests of one store that run without a task of their own.
#[derive(Default)]
pub(crate) struct Carrier {
    bare: Mutex<Vec<Weak<dyn Carried>>>,
}

/// What can be carried along, whatever it answers.
trait Carried: Send + Sync {
    /// Ready when the request has ended or panicked.
    fn poll(&self, context: &Context<'_>) -> Poll<()>;
}

/// A request that more than one may poll, until it has ended.
///
/// `futures_util`'s `Shared` would do, but tells of the end whoever brings it about as well: a task that
/// has gone on would be polled once more for nothing, by another thread and its processor.
struct Along<T> {
    state: Mutex<State<T>>,
    pollers: Arc<Pollers>,
    /// Wakes all of them.
    waker: Waker,
}

enum State<T> {
    Asking(BoxFuture<'static, T>),
    Answered(T),
    /// The answer was taken, or there will be none.
    Empty,
}

/// Whoever polled a request and waits for it: seldom more than one.
#[derive(Default)]
struct Pollers(Mutex<(Option<Waker>, Vec<Waker>)>);

impl Wake for Pollers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        for poller in self.take() {
            poller.wake();
        }
    }
}

impl Pollers {
    fn add(&self, poller: &Waker) {
        let (first, others) = &mut *lock(&self.0);
        if first.iter().chain(&*others).any(|it| it.will_wake(poller)) {
            return;
        }
        match first {
            None => *first = Some(poller.clone()),
            Some(_) => others.push(poller.clone()),
        }
    }

    fn take(&self) -> impl Iterator<Item = Waker> + use<> {
        let (first, others) = std::mem::take(&mut *lock(&self.0));
        first.into_iter().chain(others)
    }
}

impl<T> Along<T> {
    fn new(request: BoxFuture<'static, T>) -> Self {
        let pollers = Arc::<Pollers>::default();
        Self {
            state: Mutex::new(State::Asking(request)),
            waker: Arc::clone(&pollers).into(),
            pollers,
        }
    }

    /// `None` if the request panicked.
    fn answer(&self) -> Option<T> {
        match std::mem::replace(&mut *lock(&self.state), State::Empty) {
            State::Answered(answer) => Some(answer),
            State::Asking(_) | State::Empty => None,
        }
    }
}

impl<T: Send> Carried for Along<T> {
    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let own = context.waker();
        // First: it may end elsewhere before this has come to it.
        self.pollers.add(own);
        let mut state = lock(&self.state);
        // Taken out of its place, where it does not stay if it panics.
        *state = match std::mem::replace(&mut *state, State::Empty) {
            State::Asking(mut request) => {
                match request.poll_unpin(&mut Context::from_waker(&self.waker)) {
                    Poll::Ready(answer) => State::Answered(answer),
                    Poll::Pending => {
                        *state = State::Asking(request);
                        return Poll::Pending;
                    }
                }
            }
            ended => ended,
        };
        drop(state);
        for other in self.pollers.take() {
            if !other.will_wake(own) {
                other.wake();
            }
        }
        Poll::Ready(())
    }
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
        let request = Arc::new(Along::new(request));
        // Known to others before it can have anything that they wait for.
        {
            let mut bare = lock(&self.bare);
            if bare.len() >= MANY {
                bare.retain(|known| known.strong_count() > 0);
            }
            let known = Arc::downgrade(&request);
            bare.push(known);
        }
        poll_fn(|context| request.poll(context)).await;
        request.answer()
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
                let known: Vec<Arc<dyn Carried>> = {
                    let bare = lock(&carrier.bare);
                    bare.iter().filter_map(Weak::upgrade).collect()
                };
                let ends = known
                    .iter()
                    .map(|known| poll_fn(|context| known.poll(context)));
                join_all(ends).await;
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
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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
    async fn all_who_wait_for_a_request_hear_of_its_end() {
        let (carrier, ways) = (Arc::new(Carrier::default()), Ways::new());
        let mut requests = JoinSet::new();
        for room in [true, false] {
            let (carrier, ways) = (Arc::clone(&carrier), Arc::clone(&ways));
            requests.spawn(async move { carrier.carry(room, ways.request()).await });
            yield_now().await;
        }
        // The other comes to carry the first one along, and polls it last.
        for _ in 0..5 {
            yield_now().await;
        }
        ways.gate.add_permits(2);
        let ends = timeout(Duration::from_secs(10), requests.join_all());
        assert_eq!(ends.await, Ok(vec![Some(7); 2]));
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn whoever_ends_a_request_tells_the_others_and_not_himself() {
        let ended = Arc::<AtomicBool>::default();
        let end = Arc::clone(&ended);
        let request = Along::new(Box::pin(poll_fn(move |_| {
            match end.load(Ordering::Relaxed) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })));
        let wakes = [(); 2].map(|()| Arc::<Wakes>::default());
        let wakers = wakes.each_ref().map(|it| Waker::from(Arc::clone(it)));
        let poll = |who: usize| request.poll(&Context::from_waker(&wakers[who]));
        assert!(poll(0).is_pending() && poll(1).is_pending());
        ended.store(true, Ordering::Relaxed);
        assert!(poll(0).is_ready());
        let told = wakes.map(|it| it.0.load(Ordering::Relaxed));
        assert_eq!(told, [0, 1]);
        assert!(request.poll(&Context::from_waker(Waker::noop())).is_ready());
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
