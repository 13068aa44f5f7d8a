//! Tasks that run beside a case, and how long the case waits for them.

use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use lockkit_core::{BackendError, Guard, Lock, Outcome as Told};
use tokio::runtime::Builder;
use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::failure::{Failure, Outcome, ensure};

/// The longest that a case waits for an event that must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What a user takes for "at once" on a busy machine; shorter than any re-check of a long lease.
pub const AT_ONCE: Duration = Duration::from_millis(1500);

/// How long a long test takes: the seconds in `LOCKKIT_SOAK`, or else `short`.
///
/// # Errors
/// - [`Failure`] if the variable is no number.
pub fn soak_length(short: Duration) -> Outcome<Duration> {
    match std::env::var("LOCKKIT_SOAK") {
        Ok(seconds) => Ok(Duration::from_secs(seconds.parse()?)),
        Err(_) => Ok(short),
    }
}

/// Repeats a step of a store as a client does, until it succeeds.
///
/// # Errors
/// - [`Failure`] if the store rejects it, or goes on to fail for longer than `patience`.
pub async fn repeated<T, F>(patience: Duration, step: impl Fn() -> F + Send + Sync) -> Outcome<T>
where
    F: Future<Output = Result<T, BackendError>> + Send,
{
    let began = Instant::now();
    loop {
        match step().await {
            Err(error) if error.outcome() != Told::Rejected && began.elapsed() <= patience => {
                sleep(patience / 50).await;
            }
            result => return Ok(result?),
        }
    }
}

/// A task that ends with its handle.
#[derive(Debug)]
pub struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs something beside the case.
#[expect(
    clippy::disallowed_methods,
    reason = "cases run inside a runtime of their own"
)]
pub fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Task<T> {
    Task(tokio::spawn(future))
}

impl<T> Task<T> {
    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Its result. The case fails if it does not come in time.
    ///
    /// # Errors
    /// - [`Failure`] if it panicked or takes longer than [`PATIENCE`].
    #[track_caller]
    pub fn soon(self) -> impl Future<Output = Outcome<T>> + Send
    where
        T: Send,
    {
        let late = Failure::new("it did not come to an end");
        async move {
            let mut task = self;
            match timeout(PATIENCE, &mut task.0).await {
                Ok(joined) => Ok(joined?),
                Err(_) => Err(late),
            }
        }
    }

    /// Fails if it ends within `span`: the case says that it has to wait.
    ///
    /// # Errors
    /// - [`Failure`] if it has ended.
    pub async fn waits_for(&mut self, span: Duration) -> Outcome {
        match timeout(span, &mut self.0).await {
            Ok(_) => Err(Failure::new("it did not wait")),
            Err(_) => Ok(()),
        }
    }

    /// Aborts it and waits for its end.
    pub async fn cancel(mut self) {
        self.0.abort();
        // Cancelled, or finished a moment earlier.
        drop((&mut self.0).await);
    }
}

/// Runs trials, so many of them at once. Returns of how many the fault has struck.
///
/// # Errors
/// - [`Failure`] of the first trial that fails, panics, or takes longer than [`PATIENCE`]; it names the trial.
pub async fn run_trials<T, F>(
    trials: Vec<T>,
    at_once: usize,
    run: impl Fn(T) -> F + Send + Sync,
) -> Outcome<usize>
where
    T: Copy + Debug + Send,
    F: Future<Output = Outcome<bool>> + Send + 'static,
{
    let ended = trials.into_iter().map(|trial| {
        let task = run(trial);
        async move {
            let ended = spawn(task).soon().await.flatten();
            ended.map_err(|failed| Failure::new(format!("{trial:?}: {failed}")))
        }
    });
    let struck = stream::iter(ended).buffer_unordered(at_once);
    let struck = struck.try_filter(|struck| ready(*struck));
    Ok(struck.try_collect::<Vec<_>>().await?.len())
}

/// Runs something in a runtime of its own, which ends with it.
///
/// # Errors
/// - [`Failure`] of the work, or if it takes longer than [`PATIENCE`].
pub async fn elsewhere<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Outcome<T>
where
    T: Send + 'static,
    F: Future<Output = Outcome<T>>,
{
    let thread = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work())
    });
    soon(thread).await??
}

/// Acquires in a task of its own.
pub fn acquire(lock: &Lock) -> Task<lockkit_core::Result<Guard>> {
    let lock = lock.clone();
    spawn(async move { lock.acquire().await })
}

/// Works with each lock in a task of its own. All of them begin at the same moment.
pub fn together<T, F>(locks: Vec<Lock>, work: impl Fn(Lock) -> F) -> Vec<Task<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let begin = Arc::new(Barrier::new(locks.len()));
    let tasks = locks.into_iter().map(|lock| {
        let (begin, work) = (Arc::clone(&begin), work(lock));
        spawn(async move {
            begin.wait().await;
            work.await
        })
    });
    tasks.collect()
}

/// Gives a lock back to one that waits for it, whose token is larger.
///
/// # Errors
/// - [`Failure`] if it is not, or the lock is not given over.
pub async fn hand_over(guard: Guard, waiter: Task<lockkit_core::Result<Guard>>) -> Outcome<Guard> {
    let token = guard.token();
    guard.release().await?;
    let next = waiter.soon().await??;
    ensure(next.token() > token, "the token has not grown")?;
    Ok(next)
}

/// Polls a future once: an acquire has its place in the order of its client then.
pub async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = ready(()) => None,
    }
}

/// Polls a future so many times; `None` if it was not ready, and is dropped.
pub async fn poll_times<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if let Some(value) = poll_once(&mut future).await {
            return Some(value);
        }
        sleep(Duration::from_micros(200)).await;
    }
    None
}

/// Bounds what must come soon.
///
/// # Errors
/// - [`Failure`] if it takes longer than [`PATIENCE`].
#[track_caller]
pub fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = Outcome<T>> {
    within(PATIENCE, future)
}

/// Bounds what must come within `limit`.
///
/// # Errors
/// - [`Failure`] if it takes longer.
#[track_caller]
pub fn within<T>(
    limit: Duration,
    future: impl Future<Output = T>,
) -> impl Future<Output = Outcome<T>> {
    let late = Failure::new(format!("it took longer than {limit:?}"));
    async move { timeout(limit, future).await.map_err(|_| late) }
}

/// Waits until `probe` says yes; for what no event tells.
///
/// # Errors
/// - [`Failure`] if it still says no after [`PATIENCE`].
#[track_caller]
pub fn until(
    what: &str,
    mut probe: impl AsyncFnMut() -> Outcome<bool>,
) -> impl Future<Output = Outcome> {
    let late = Failure::new(format!("still not so: {what}"));
    async move {
        let end = Instant::now() + PATIENCE;
        while !probe().await? {
            if Instant::now() >= end {
                return Err(late);
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}
