//! The wake-ups of one ticket.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{Ticket, Wake, Watch};
use lockkit_core::store::waiters::TicketWatch;
use lockkit_core::{BackendError, HolderId, LossReason};

use crate::position::Position;
use crate::waiters::Waiters;

/// How long the server is asked why a key is gone: two requests. Then the loss is reported without it.
const ASK_WHY: Duration = Duration::from_millis(200);

/// The wake-ups of one ticket.
#[derive(Debug)]
pub(crate) struct EtcdWatch {
    waiters: Arc<Waiters>,
    holder: HolderId,
    /// Taken when this is dropped.
    wakes: Option<TicketWatch<Position>>,
    /// The key is gone, and the reason was not returned yet.
    gone: bool,
}

impl EtcdWatch {
    /// Opens the wake-ups of a ticket; `None` if it has no key.
    pub(crate) fn open(waiters: &Arc<Waiters>, ticket: &Ticket) -> Option<Self> {
        let wakes = waiters.watch(ticket)?;
        Some(Self {
            waiters: Arc::clone(waiters),
            holder: ticket.holder,
            wakes: Some(wakes),
            gone: false,
        })
    }

    /// Whether the key alone is gone, or the whole session.
    async fn reason(&self) -> LossReason {
        match self.waiters.known(self.holder) {
            Some(at) if at.session.ask_whether_ended(ASK_WHY).await => LossReason::SessionEnded,
            _ => LossReason::Superseded,
        }
    }
}

#[async_trait]
impl Watch for EtcdWatch {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        // A ticket that has got another key meanwhile has not lost that one.
        self.gone &= self.waiters.alive(self.holder).is_none();
        if !self.gone
            && let Some(wakes) = &mut self.wakes
        {
            let wake = wakes.changed().await?;
            if wake != Wake::Lost(LossReason::Superseded) {
                return Ok(wake);
            }
            self.gone = true;
        }
        let reason = self.reason().await;
        self.gone = false;
        Ok(Wake::Lost(reason))
    }
}

impl Drop for EtcdWatch {
    fn drop(&mut self) {
        if let Some(wakes) = self.wakes.take() {
            self.waiters.unwatch(self.holder, wakes);
        }
    }
}
