//! Releases: deletes the key of a ticket.

use lockkit_core::BackendError;
use lockkit_core::contract::{Release, Ticket};

use crate::error::Failed;
use crate::queue::{self, Contender};
use crate::shared::Shared;

impl Shared {
    /// Ends the hold of a ticket, or removes it from the queue.
    pub(crate) async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let mut released = Release::NotHeld;
        let at = self.known(ticket.holder);
        // A lease that has ended has deleted its keys.
        if let Some(at) = at.filter(|at| at.session.is_alive()) {
            // Before it is written: a request that is abandoned here may delete the key later.
            self.request(ticket.holder);
            let held = self.delete(&at).await;
            if held.map_err(|failed| failed.into_error("release"))? {
                released = Release::Released;
            }
        }
        self.released(ticket.holder);
        Ok(released)
    }

    /// Deletes the key of a ticket. Returns whether it was a hold.
    async fn delete(&self, at: &Contender) -> Result<bool, Failed> {
        // A key that was the first once stays the first.
        if let Some(created) = at.created.filter(|_| at.held) {
            let delete = queue::delete_if(at.key.as_bytes(), created);
            return Ok(self.link.txn("release", &delete).await?.succeeded());
        }
        let answer = self.link.txn("release", &queue::leave(at)).await?;
        Ok(queue::was_first(at, &answer))
    }
}
