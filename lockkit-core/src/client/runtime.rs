//! The only place that starts tasks.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::contract::{Error, Result};

/// Whether timers work in a runtime. Tokio gives no other way to ask: without timers the panic hook is called, and a
/// program that aborts on a panic ends. So it is asked only of runtimes of which nothing is known.
pub(crate) fn has_time(runtime: &Handle) -> bool {
    let _entered = runtime.enter();
    std::panic::catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok()
}

/// The runtime that a client was made in; its tasks run there, wherever it is used.
#[derive(Clone, Debug)]
pub(crate) struct Runtime(Handle);

impl Runtime {
    pub(crate) const fn new(handle: Handle) -> Self {
        Self(handle)
    }

    /// Whether the caller runs in it as well.
    pub(crate) fn is_current(&self) -> bool {
        Handle::try_current().is_ok_and(|current| current.id() == self.0.id())
    }

    /// Whether the caller has timers. This runtime has.
    pub(crate) fn has_time_here(&self) -> bool {
        self.is_current() || Handle::try_current().is_ok_and(|current| has_time(&current))
    }

    /// Carries out a request: in place where the caller runs here, else as a task, which goes on
    /// without its caller. Another runtime, with its timers and its connections, may end or stand
    /// still at any moment.
    ///
    /// # Errors
    /// - [`Error::Shutdown`] if this runtime has stopped.
    pub(crate) async fn run<F>(&self, request: F) -> Result<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        if self.is_current() {
            return Ok(request.await);
        }
        match self.spawn(request).await {
            Ok(answer) => Ok(answer),
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::Shutdown),
            },
        }
    }

    /// Starts a task. On a runtime that has stopped the future is dropped at once, without a panic.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.spawn(future)
    }
}
