//! The watch of one ticket.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::backend::{Wake, Watch};
use lockkit_core::{BackendError, HolderId, LossReason};
use tokio::sync::Notify;

use super::Desk;

/// So long the server is asked why a key is gone, before the loss is told without it: two requests.
const ASK_WHY: Duration = Duration::from_millis(200);

/// The wake-ups of one ticket.
#[derive(Debug)]
pub(crate) struct EtcdWatch {
    pub(super) desk: Arc<Desk>,
    pub(super) holder: HolderId,
    pub(super) directory: Arc<str>,
    pub(super) bell: Arc<Notify>,
}

#[async_trait]
impl Watch for EtcdWatch {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        loop {
            match self.desk.next(self.holder) {
                Some(Wake::Lost(LossReason::Superseded)) => {
                    return Ok(Wake::Lost(self.reason().await));
                }
                Some(wake) => return Ok(wake),
                None => self.bell.notified().await,
            }
        }
    }
}

impl EtcdWatch {
    /// Why the key is gone: was it the key alone, or the whole session? A caller that is dropped
    /// meanwhile is told again.
    async fn reason(&self) -> LossReason {
        let untold = Untold(self);
        if let Some(at) = self.desk.known(self.holder) {
            let ended = at.session.has_ended(ASK_WHY).await;
            std::mem::forget(untold);
            if ended {
                return LossReason::SessionEnded;
            }
        }
        LossReason::Superseded
    }
}

/// A loss that was taken and not yet told.
struct Untold<'a>(&'a EtcdWatch);

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        self.0.desk.untell(self.0.holder);
    }
}

impl Drop for EtcdWatch {
    fn drop(&mut self) {
        self.desk.unwatch(self.holder, &self.directory);
    }
}
