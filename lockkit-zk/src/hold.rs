//! Steps of a ticket that holds: renewals, notes, releases. A release also removes a waiter, and a node that a
//! late request creates.

use std::sync::Arc;
use std::time::Duration;

use lockkit_core::contract::{Release, Renewal, Ticket};
use lockkit_core::{HolderId, Outcome};
use tokio::time::sleep;
use zookeeper_client::Error;

use crate::error::Result;
use crate::fenced::{Writes, transact};
use crate::queue;
use crate::session::Session;
use crate::shared::Shared;
use crate::waiters::Contender;

/// The most nodes that one pipelined round trip checks.
const CHUNK: usize = 500;
/// After this time no request is on its way any more.
const LATE: Duration = Duration::from_secs(2);

impl Shared {
    /// Renews the holds of tickets.
    pub(crate) async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::with_capacity(tickets.len());
        for chunk in tickets.chunks(CHUNK) {
            answers.extend(self.renew_chunk(chunk).await);
        }
        answers
    }

    /// Sends a heartbeat to the leader and then checks the node of each hold.
    ///
    /// A follower answers reads alone, for seconds after it was cut off from the leader. Only the `sync`,
    /// which needs the leader, proves that the session is alive. The lease counts from its sending. INV-2.
    async fn renew_chunk(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        let session = self.sessions.present();
        let held = |ticket: &Ticket| {
            let contender = self.contender(ticket.holder)?;
            let present = Arc::ptr_eq(&contender.session, &session);
            present.then(|| contender.held_path())?
        };
        let paths: Vec<Option<String>> = tickets.iter().map(held).collect();
        let gone = |ticket: &Ticket| match self.contender(ticket.holder) {
            Some(contender) if contender.session.has_ended() => Renewal::SessionEnded,
            _ => Renewal::NotHeld,
        };
        if session.has_ended() || paths.iter().all(Option::is_none) {
            return tickets.iter().map(gone).map(Ok).collect();
        }
        if let Err(error) = session.connected("renew").await {
            return vec![Err(error); tickets.len()];
        }
        // Sends all requests before it waits for the first answer. The server keeps their order.
        let heartbeat = session.heartbeat("renew");
        let stats = paths
            .iter()
            .map(|path| Some(session.stat("renew", path.as_ref()?)));
        let stats: Vec<_> = stats.collect();
        if let Err(error) = heartbeat.await {
            return vec![Err(error); tickets.len()];
        }
        let mut answers = Vec::with_capacity(tickets.len());
        for (ticket, stat) in tickets.iter().zip(stats) {
            let stat = match stat {
                Some(stat) => stat.await,
                None => Ok(None),
            };
            answers.push(stat.map(|stat| match stat {
                Some(stat) if stat.ephemeral_owner == session.id() => Renewal::Renewed {
                    since: Some(session.since()),
                    ttl: session.lease,
                },
                _ => gone(ticket),
            }));
        }
        answers
    }

    /// Gives a hold a note. Returns whether the ticket holds.
    pub(crate) async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool> {
        let contender = self.contender(ticket.holder);
        let Some(contender) = contender.filter(|it| !it.session.has_ended()) else {
            return Ok(false);
        };
        let Some(path) = contender.held_path() else {
            return Ok(false);
        };
        let session = &contender.session;
        session.connected("note").await?;
        let data = self.keys.data(ticket, text);
        match session.client.set_data(&path, data.as_bytes(), None).await {
            Ok(_) => Ok(true),
            Err(Error::NoNode | Error::SessionExpired) => Ok(false),
            Err(error) => Err(session.error("note", &error)),
        }
    }

    /// Ends the hold of a ticket, or removes it from the queue.
    pub(crate) async fn release(&self, ticket: &Ticket) -> Result<Release> {
        self.waiters.refuse(ticket.holder);
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

    /// Ends what there is of a ticket that its client cannot release any more: the session lives on.
    pub(crate) fn abandon(&self, holder: HolderId) {
        self.waiters.refuse(holder);
        let left = self.waiters.forget(holder);
        if let Some(contender) = left.and_then(|left| left.data.contender) {
            self.delete_late(&contender);
        }
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
        let Some(written) = writing.await? else {
            return Ok(false);
        };
        session.acknowledge(sent);
        writes.keep(written);
        Ok(true)
    }

    /// Deletes a while later the node of a ticket that has gone: one that is left, or one that a create request without
    /// an answer has made since.
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
                // What was refused is refused again.
                if !deleted.is_err_and(|error| error.outcome() != Outcome::Rejected) {
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
