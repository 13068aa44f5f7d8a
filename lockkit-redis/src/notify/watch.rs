//! The watch of one ticket.

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::backend::{Wake, Watch};
use lockkit_core::{BackendError, HolderId};
use tokio::sync::Notify;

use super::Desk;

/// The wake-ups of one ticket.
#[derive(Debug)]
pub(super) struct RedisWatch {
    pub(super) desk: Arc<Desk>,
    pub(super) holder: HolderId,
    pub(super) channel: String,
    pub(super) bell: Arc<Notify>,
}

#[async_trait]
impl Watch for RedisWatch {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        loop {
            if let Some(wake) = self.desk.next(self.holder) {
                return Ok(wake);
            }
            self.bell.notified().await;
        }
    }
}

impl Drop for RedisWatch {
    fn drop(&mut self) {
        self.desk.unwatch(self.holder, &self.channel);
    }
}
