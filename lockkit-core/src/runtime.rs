//! The only place that starts tasks.

use tokio::runtime::Handle;
use tokio::task::{AbortHandle, JoinHandle};

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

    /// Starts a task. On a runtime that has stopped the future is dropped at once, without a panic.
    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.spawn(future)
    }

    /// As [`spawn`](Self::spawn), for a task that is only ever aborted.
    pub(crate) fn spawn_abortable<F>(&self, future: F) -> AbortHandle
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.0.spawn(future).abort_handle()
    }
}
