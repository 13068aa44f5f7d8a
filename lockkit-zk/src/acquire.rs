//! Attempts: joining the queue of a lock, and finding the own node again after a lost answer.

use std::sync::Arc;

use lockkit_core::contract::{Attempt, Ticket};
use lockkit_core::store::predecessors::{Next, fits};
use lockkit_core::store::tag;
use lockkit_core::store::waiters::Entry;
use lockkit_core::{BackendError, HolderId, LossReason, Outcome};
use zookeeper_client::{CreateMode, Error};

use crate::error::{BACKEND, Result, fault, outcome};
use crate::hold::delete_own;
use crate::keys;
use crate::queue;
use crate::session::{Session, options};
use crate::shared::Shared;
use crate::waiters::{Contender, Node, TicketState};

/// How often the node of a lock is created before an attempt fails, because another client keeps removing it.
const CREATES: u32 = 5;

impl Shared {
    pub(crate) async fn attempt(&self, ticket: &Ticket) -> Result<Attempt> {
        let number = self.waiters.attempted(ticket);
        let result = match self.join(ticket).await {
            Err(error) => Err(self.of_attempt(ticket, error).await),
            attempt => attempt,
        };
        self.waiters.answered(ticket, number, &result);
        result
    }

    /// The error of an attempt one of whose requests failed. While its node may exist, the attempt may have
    /// been carried out, whatever the answer to that request was.
    async fn of_attempt(&self, ticket: &Ticket, error: BackendError) -> BackendError {
        let contender = |entry: &mut Entry<TicketState>| entry.data.contender.clone();
        let contender = match self.waiters.with(ticket.holder, contender) {
            // No request that creates a node was sent, or it was refused.
            Some(None) => return error.without_effect(),
            // The node of an ended session has gone with it.
            Some(Some(contender)) if !contender.session.has_ended() => contender,
            _ => return error,
        };
        // A permanent error is returned at once, and then no node may stay.
        let rejected = error.outcome() == Outcome::Rejected && contender.node.is_some();
        if rejected && delete_own("attempt", &contender).await.is_ok() {
            self.set(ticket.holder, None);
            return error;
        }
        error.with_outcome(Outcome::Indeterminate)
    }

    async fn join(&self, ticket: &Ticket) -> Result<Attempt> {
        if self.waiters.is_refused(ticket.holder) {
            return Err(BackendError::released(BACKEND, "attempt"));
        }
        let session = self.sessions.live("attempt").await?;
        // The node of an ended session has gone with it.
        let known = self.contender(ticket.holder);
        let of_session = |contender: &Contender| Arc::ptr_eq(&contender.session, &session);
        if known.as_ref().is_some_and(|known| !of_session(known)) {
            self.expect_unwatched(ticket.holder, LossReason::SessionEnded)?;
        }
        let known = known.filter(of_session);
        let mut found = None;
        if let Some(contender) = known {
            if still_waits(&contender).await? {
                return Ok(Attempt::held());
            }
            found = self.find_again(ticket, contender).await?;
        } else if !ticket.enqueue {
            // A try creates a node only if it seems to hold then.
            let path = self.keys.of(&ticket.name);
            let queue = queue::list_synced("attempt", &session, &path).await?;
            if !fits(ticket.mode, &queue, |node| keys::mode(node)) {
                return Ok(Attempt::held());
            }
        }
        let (contender, queue) = match found {
            Some(found) => found,
            None => self.create(ticket, session).await?,
        };
        self.decide(ticket, contender, queue).await
    }

    /// Decides by a listing of the queue whether the ticket has the lock.
    async fn decide(
        &self,
        ticket: &Ticket,
        mut contender: Contender,
        queue: Vec<String>,
    ) -> Result<Attempt> {
        let node = contender.node.as_mut().ok_or_else(vanished)?;
        node.predecessors.listed(queue, false);
        let attempt = match node.predecessors.next() {
            Next::Gone | Next::List => return Err(vanished()),
            Next::Turn => {
                node.granted = true;
                Attempt::Granted(self.grant(&contender.session, node))
            }
            Next::Watch(_) if ticket.enqueue => Attempt::held(),
            Next::Watch(_) => {
                // Another client was faster. A try leaves nothing behind.
                delete_own("attempt", &contender).await?;
                self.set(ticket.holder, None);
                return Ok(Attempt::held());
            }
        };
        self.waiters.with(ticket.holder, |entry| {
            let known = entry.data.contender.as_ref();
            let known = known.and_then(|known| known.node.as_ref());
            // An event that came after the listing may have granted it.
            if let (Some(node), Some(known)) = (&mut contender.node, known) {
                node.granted |= known.granted && known.czxid == node.czxid;
            }
            entry.data.contender = Some(contender);
        });
        Ok(attempt)
    }

    /// Looks for the node of a ticket that has one, or may have one. Returns it with the queue if it is
    /// there.
    async fn find_again(
        &self,
        ticket: &Ticket,
        mut contender: Contender,
    ) -> Result<Option<(Contender, Vec<String>)>> {
        let session = &contender.session;
        let queue = queue::list_synced("attempt", session, &contender.lock_path).await?;
        let found = queue::find(&queue, &contender.prefix);
        match (found, &contender.node) {
            (Some(_), Some(_)) => {}
            (Some(name), None) => {
                let stat = session.stat("attempt", &contender.path(&name)).await?;
                let ours = stat.filter(|stat| stat.ephemeral_owner == session.id());
                let czxid = ours.ok_or_else(vanished)?.czxid;
                contender.node = Some(Node::new(name, czxid));
                self.set(ticket.holder, Some(contender.clone()));
            }
            (None, Some(_)) => {
                self.expect_unwatched(ticket.holder, LossReason::Superseded)?;
                return Ok(None);
            }
            (None, None) => {
                self.delete_late(&contender);
                return Ok(None);
            }
        }
        Ok(Some((contender, queue)))
    }

    /// A ticket whose node is watched has lost with it: it gets no other one, and the client begins anew.
    fn expect_unwatched(&self, holder: HolderId, reason: LossReason) -> Result<()> {
        let lose = |entry: &mut Entry<TicketState>| {
            let is_watched = entry.is_watched();
            if is_watched {
                entry.lost(reason);
            }
            is_watched
        };
        match self.waiters.with(holder, lose) {
            Some(true) => Err(vanished()),
            _ => Ok(()),
        }
    }

    /// Creates the node and lists the queue: two round trips, because the client library writes one request at a time.
    async fn create(
        &self,
        ticket: &Ticket,
        session: Arc<Session>,
    ) -> Result<(Contender, Vec<String>)> {
        let client = &session.client;
        let options = options(CreateMode::EphemeralSequential, self.access);
        let data = tag::write(ticket, None);
        let mut contender = Contender {
            session: Arc::clone(&session),
            lock_path: self.keys.of(&ticket.name),
            prefix: self.keys.new_prefix(ticket.mode),
            node: None,
        };
        let path = contender.path(&contender.prefix);
        let mut creates = 0;
        let ((stat, number), sent, children) = loop {
            // Before the request is sent, so that the release of a ticket whose caller gives up now looks
            // for the node.
            self.set(ticket.holder, Some(contender.clone()));
            let sent = session.now();
            let create = client.create(&path, data.as_bytes(), &options);
            let children = client.list_children(&contender.lock_path);
            let error = match create.await {
                Ok(created) => break (created, sent, children),
                Err(error) => error,
            };
            if outcome(&error) != Outcome::Indeterminate {
                self.set(ticket.holder, None);
            }
            if error != Error::NoNode || creates == CREATES {
                return Err(session.error("attempt", &error));
            }
            creates += 1;
            let made = session.make(&contender.lock_path, self.access).await;
            made.map_err(|error| session.error("attempt", &error))?;
        };
        session.acknowledge(sent);
        let name = format!("{}{number}", contender.prefix);
        contender.node = Some(Node::new(name, stat.czxid));
        self.set(ticket.holder, Some(contender.clone()));
        let queue = queue::read("attempt", &session, &contender.lock_path, children).await?;
        Ok((contender, queue))
    }
}

/// Whether a waiter's node and one that blocks it are still there. Then the queue need not be listed, which
/// is the cost of many waiters. Nothing is synced first: a look that comes too early is followed by another.
async fn still_waits(contender: &Contender) -> Result<bool> {
    let waiter = contender.node.as_ref().filter(|node| !node.granted);
    let Some(node) = waiter else {
        return Ok(false);
    };
    let Some(blocker) = node.predecessors.blocker() else {
        return Ok(false);
    };
    let session = &contender.session;
    let stats = [node.name(), blocker].map(|node| session.stat("attempt", &contender.path(node)));
    for stat in stats {
        if stat.await?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Its node was deleted at once, or belongs to another session. The client tries again.
fn vanished() -> BackendError {
    let why = "another client deleted the node of the ticket";
    fault("attempt", Outcome::Indeterminate, why)
}
