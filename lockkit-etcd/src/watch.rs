//! The wake-ups of one ticket.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{Ticket, Wake, Watch};
use lockkit_core::store::waiters::TicketWatch;
use lockkit_core::{HolderId, LossReason};
use tokio::time::{sleep, timeout};

use crate::error::Result;
use crate::position::Position;
use crate::shared::Shared;

/// How long the server is asked why a key is gone: two requests. Then the loss is reported without it.
const ASK_WHY: Duration = Duration::from_millis(200);
/// The longest time between the end of the keys of a lease and that of the lease.
const KEYS_BEFORE_LEASE: Duration = Duration::from_millis(20);

/// The wake-ups of one ticket.
#[derive(Debug)]
pub(crate) struct EtcdWatch {
    shared: Arc<Shared>,
    holder: HolderId,
    /// Taken when this is dropped.
    wakes: Option<TicketWatch<Position>>,
    /// The key is gone, and the reason was not returned yet.
    gone: bool,
}

impl EtcdWatch {
    /// Opens the wake-ups of a ticket; `None` if it has no key.
    pub(crate) fn open(shared: &Arc<Shared>, ticket: &Ticket) -> Option<Self> {
        let wakes = shared.watch(ticket)?;
        Some(Self {
            shared: Arc::clone(shared),
            holder: ticket.holder,
            wakes: Some(wakes),
            gone: false,
        })
    }

    /// Whether the key alone is gone, or the whole session.
    async fn reason(&self) -> LossReason {
        let Some(at) = self.shared.known(self.holder) else {
            return LossReason::Superseded;
        };
        let asked = async {
            // A server deletes the keys of a lease before the lease itself.
            for pause in [KEYS_BEFORE_LEASE, Duration::ZERO] {
                // With a shorter limit, a slow answer would close the connection, which may be well.
                let remaining = self.shared.link.remaining("watch", at.session.id()).await;
                if matches!(remaining, Ok(None)) {
                    return at.session.end();
                }
                sleep(pause).await;
            }
        };
        // No answer in time means that nothing is known.
        drop(timeout(ASK_WHY, asked).await);
        match at.session.is_alive() {
            true => LossReason::Superseded,
            false => LossReason::SessionEnded,
        }
    }
}

#[async_trait]
impl Watch for EtcdWatch {
    async fn changed(&mut self) -> Result<Wake> {
        // A ticket that has got another key meanwhile has not lost that one.
        self.gone &= self.shared.alive(self.holder).is_none();
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
            self.shared.unwatch(self.holder, wakes);
        }
    }
}
