//! Releases: deleting the node of a ticket, also one that a late request creates.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::BackendError;
use lockkit_core::contract::{Release, Ticket};
use tokio::time::sleep;
use zookeeper_client::Error;

use crate::error::of_request;
use crate::queue;
use crate::session::Session;
use crate::shared::Shared;
use crate::waiters::{Contender, Node};

/// After this time no request is on its way any more.
const LATE: Duration = Duration::from_secs(2);

impl Shared {
    /// Ends the hold of a ticket, or removes it from the queue.
    pub(crate) async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        // First, so that an attempt that does not see it has been seen by the lines below.
        self.refuse(ticket.holder);
        let _turn = self.turn(ticket.holder).await;
        let known = self.contender(ticket.holder);
        let Some(mut contender) = known.filter(|contender| !contender.session.has_ended()) else {
            self.waiters.forget(ticket.holder);
            return Ok(Release::NotHeld);
        };
        let session = Arc::clone(&contender.session);
        session.connected("release").await?;
        let unknown = contender.node.is_none();
        if unknown {
            let queue = queue::list_synced("release", &session, &contender.lock_path).await?;
            let name = queue::find(&queue, &contender.prefix);
            contender.node = name.map(|name| Node { name, czxid: 0 });
        }
        let deleted = self.delete_own("release", &contender).await?;
        self.waiters.forget(ticket.holder);
        if unknown && !deleted {
            self.delete_late(&contender);
        }
        Ok(match deleted && contender.granted {
            true => Release::Released,
            false => Release::NotHeld,
        })
    }

    /// Deletes the node of a ticket; returns whether it was there.
    pub(crate) async fn delete_own(
        &self,
        operation: &'static str,
        contender: &Contender,
    ) -> Result<bool, BackendError> {
        let Some(path) = contender.own_path() else {
            return Ok(false);
        };
        let sent = contender.session.now();
        let deleted = delete(operation, &contender.session, &path).await?;
        contender.session.acknowledge(sent);
        Ok(deleted)
    }

    /// Deletes, a while after a create request that has no answer and no node, the node that it has created
    /// since.
    ///
    /// A server refuses what comes late on a connection that was replaced. But if it stalls between reading
    /// a request and queueing it, the requests of the next connection may overtake that one. The session
    /// would keep such a node as long as it lives.
    pub(crate) fn delete_late(&self, contender: &Contender) {
        // A session that no store uses is closed, and not kept for this.
        let session = Arc::downgrade(&contender.session);
        let (lock_path, prefix) = (contender.lock_path.clone(), contender.prefix.clone());
        self.sessions.spawn(async move {
            loop {
                sleep(LATE).await;
                let session = session.upgrade().filter(|session| !session.has_ended());
                let Some(session) = session else { return };
                if delete_found(&session, &lock_path, &prefix).await.is_ok() {
                    return;
                }
            }
        });
    }
}

async fn delete_found(
    session: &Session,
    lock_path: &str,
    prefix: &str,
) -> Result<(), BackendError> {
    session.connected("release").await?;
    let queue = queue::list_synced("release", session, lock_path).await?;
    if let Some(node) = queue::find(&queue, prefix) {
        delete("release", session, &format!("{lock_path}/{node}")).await?;
    }
    Ok(())
}

/// Deletes a node; returns whether it was there.
async fn delete(
    operation: &'static str,
    session: &Session,
    path: &str,
) -> Result<bool, BackendError> {
    match session.client().delete(path, None).await {
        Ok(()) => Ok(true),
        Err(Error::NoNode) => Ok(false),
        Err(error) => Err(of_request(operation, &error)),
    }
}
