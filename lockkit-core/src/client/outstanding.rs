//! Counts what a client has not finished, for `drain` and `shutdown`.

use tokio::sync::watch;

/// A count that can be waited for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending(watch::Sender<()>);

/// Counts as unfinished work for as long as it lives.
pub(crate) type Outstanding = watch::Receiver<()>;

impl Pending {
    pub(crate) fn begin(&self) -> Outstanding {
        self.0.subscribe()
    }

    /// Waits until nothing is counted.
    pub(crate) async fn none(&self) {
        self.0.closed().await;
    }
}
