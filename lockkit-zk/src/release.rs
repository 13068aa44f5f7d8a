//! Releases: deleting the node of a ticket, also one that a late request creates.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::Outcome;
use lockkit_core::contract::{Release, Ticket};
use tokio::time::sleep;

use crate::error::{Result, fault};
use crate::fenced::{FencedError, Writes, transact};
use crate::queue;
use crate::session::Session;
use crate::shared::Shared;
use crate::waiters::Contender;

/// After this time no request is on its way any more.
const LATE: Duration = Duration::from_secs(2);

impl Shared {
    /// Ends the hold of a ticket, or removes it from the queue.
    pub(crate) async fn release(&self, ticket: &Ticket) -> Result<Release> {
        // First, so that an attempt that does not see it has been seen by the lines below.
        self.refuse(ticket.holder);
        let _turn = self.turn(ticket.holder).await;
        let known = self.contender(ticket.holder);
        let Some(contender) = known.filter(|contender| !contender.session.has_ended()) else {
            self.waiters.forget(ticket.holder);
            return Ok(Release::NotHeld);
        };
        let deleted = match (Writes::of(ticket), contender.held_path()) {
            (Some(writes), Some(path)) => self.commit(&contender.session, &path, writes).await?,
            _ => delete_own("release", &contender).await?,
        };
        self.waiters.forget(ticket.holder);
        if contender.node.is_none() && !deleted {
            self.delete_late(&contender);
        }
        Ok(match deleted && contender.held_path().is_some() {
            true => Release::Released,
            false => Release::NotHeld,
        })
    }

    /// Deletes the node of a hold in the transaction that writes. Returns whether it was there.
    async fn commit(&self, session: &Session, node: &str, writes: &Writes) -> Result<bool> {
        session.connected("commit").await?;
        let sent = session.now();
        let writing = transact(
            "commit",
            (session, node),
            &writes.request,
            self.access,
            true,
        );
        match writing.await {
            Ok(written) => {
                session.acknowledge(sent);
                writes.keep(Ok(written));
                Ok(true)
            }
            Err(FencedError::Fenced) => Ok(false),
            Err(FencedError::Backend(error)) => Err(error),
            Err(refused) => {
                let why = refused.to_string();
                writes.keep(Err(refused));
                Err(fault("commit", Outcome::Rejected, why))
            }
        }
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
        self.sessions.runtime.spawn(async move {
            loop {
                sleep(LATE).await;
                let session = session.upgrade().filter(|session| !session.has_ended());
                let Some(session) = session else { return };
                let deleted = delete_found("release", &session, &lock_path, &prefix).await;
                if deleted.is_ok() {
                    return;
                }
            }
        });
    }
}

/// Deletes the node of a ticket, also one whose creation has no answer. Returns whether it was there.
pub(crate) async fn delete_own(operation: &'static str, contender: &Contender) -> Result<bool> {
    let session = &contender.session;
    let Some(path) = contender.own_path() else {
        return delete_found(operation, session, &contender.lock_path, &contender.prefix).await;
    };
    session.connected(operation).await?;
    session.delete(operation, &path).await
}

async fn delete_found(
    operation: &'static str,
    session: &Session,
    lock_path: &str,
    prefix: &str,
) -> Result<bool> {
    session.connected(operation).await?;
    let queue = queue::list_synced(operation, session, lock_path).await?;
    let Some(node) = queue::find(&queue, prefix) else {
        return Ok(false);
    };
    let path = format!("{lock_path}/{node}");
    session.delete(operation, &path).await
}
