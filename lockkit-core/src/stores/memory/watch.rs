//! The watch of one ticket.

use std::sync::Arc;

use async_trait::async_trait;

use super::Shared;
use super::inbox::Inbox;
use crate::contract::error::BackendError;
use crate::contract::holder::HolderId;
use crate::contract::name::LockName;
use crate::contract::{Ticket, Wake, Watch};
use crate::sync::lock;

/// Reads the inbox of a ticket, and takes itself off the store's list when it is dropped.
#[derive(Debug)]
pub(super) struct MemoryWatch {
    store: Arc<Shared>,
    name: LockName,
    holder: HolderId,
    inbox: Arc<Inbox>,
}

impl MemoryWatch {
    pub(super) fn new(store: &Arc<Shared>, ticket: &Ticket, inbox: Arc<Inbox>) -> Self {
        Self {
            store: Arc::clone(store),
            name: ticket.name.clone(),
            holder: ticket.holder,
            inbox,
        }
    }
}

#[async_trait]
impl Watch for MemoryWatch {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        Ok(self.inbox.next().await)
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        lock(&self.store.state).unwatch(&self.name, self.holder);
    }
}
