//! Attempts: joining the queue of a lock, and finding the own node again after a lost answer.

use std::error::Error as _;
use std::sync::Arc;

use lockkit_core::contract::{Attempt, Ticket};
use lockkit_core::store::predecessors::{Next, Predecessors};
use lockkit_core::{BackendError, Outcome};
use zookeeper_client::{CreateMode, Error};

use crate::error::{fault, of_request, outcome};
use crate::queue;
use crate::session::{Session, options};
use crate::shared::Shared;
use crate::waiters::{Contender, Node};

/// How often the node of a lock is created before an attempt fails, because another client keeps removing it.
const CREATES: u32 = 5;
/// How many predecessors are watched.
const WATCHED: usize = 2;

impl Shared {
    pub(crate) async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let number = self.waiters.attempted(ticket);
        let result = self.attempt_in_turn(ticket).await;
        self.waiters.answered(ticket, number, &result);
        result
    }

    async fn attempt_in_turn(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let _turn = self.turn(ticket.holder).await.ok_or_else(released)?;
        if self.is_released(ticket.holder) {
            return Err(released());
        }
        match self.join(ticket).await {
            Err(error) => Err(self.of_attempt(ticket, error).await),
            attempt => attempt,
        }
    }

    /// The error of an attempt one of whose requests failed. While its node may exist, the attempt may have
    /// been carried out, whatever the answer to that request was.
    async fn of_attempt(&self, ticket: &Ticket, error: BackendError) -> BackendError {
        let Some(contender) = self.contender(ticket.holder) else {
            return error;
        };
        // A permanent error is returned at once, and then no node may stay.
        let rejected = error.outcome() == Outcome::Rejected && contender.node.is_some();
        if rejected && self.delete_own("attempt", &contender).await.is_ok() {
            self.set(ticket.holder, None);
            return error;
        }
        let why = error.source().map(ToString::to_string);
        fault("attempt", Outcome::Indeterminate, why.unwrap_or_default())
    }

    async fn join(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let session = self.sessions.live("attempt").await?;
        // The node of an ended session has gone with it.
        let known = self.contender(ticket.holder);
        let known = known.filter(|contender| Arc::ptr_eq(&contender.session, &session));
        let mut contender = known.unwrap_or_else(|| self.new_contender(ticket, &session));
        if still_waits(&contender).await? {
            return Ok(Attempt::held());
        }
        let found = if contender.node.is_some() || contender.unanswered {
            self.find_again(ticket, &mut contender).await?
        } else {
            // A try creates a node only if it seems to be the first.
            let path = &contender.lock_path;
            if !ticket.enqueue
                && !queue::list_synced("attempt", &session, path)
                    .await?
                    .is_empty()
            {
                return Ok(Attempt::held());
            }
            None
        };
        let queue = match found {
            Some(queue) => queue,
            None => self.create(ticket, &mut contender).await?,
        };
        self.decide(ticket, contender, queue).await
    }

    fn new_contender(&self, ticket: &Ticket, session: &Arc<Session>) -> Contender {
        Contender {
            session: Arc::clone(session),
            lock_path: self.keys.of(&ticket.name),
            prefix: self.keys.new_prefix(),
            node: None,
            unanswered: false,
            granted: false,
            predecessors: None,
        }
    }

    /// Decides by a listing of the queue whether the ticket has the lock.
    async fn decide(
        &self,
        ticket: &Ticket,
        mut contender: Contender,
        queue: Vec<String>,
    ) -> Result<Attempt, BackendError> {
        let node = contender.node.as_ref().ok_or_else(vanished)?;
        let mut predecessors = Predecessors::new(node.name.clone(), WATCHED);
        predecessors.listed(queue, false, |_| true);
        let attempt = match predecessors.next() {
            Next::Gone | Next::List => return Err(vanished()),
            Next::Turn => {
                let grant = self.grant(&contender.session, node)?;
                contender.granted = true;
                Attempt::Granted(grant)
            }
            Next::Watch(_) if ticket.enqueue => Attempt::held(),
            Next::Watch(_) => {
                // Another client was faster. A try leaves nothing behind.
                self.delete_own("attempt", &contender).await?;
                self.set(ticket.holder, None);
                return Ok(Attempt::held());
            }
        };
        contender.predecessors = Some(predecessors);
        self.set(ticket.holder, Some(contender));
        Ok(attempt)
    }

    /// Looks for the node of a ticket that has one, or may have one. Returns the queue if it is there.
    async fn find_again(
        &self,
        ticket: &Ticket,
        contender: &mut Contender,
    ) -> Result<Option<Vec<String>>, BackendError> {
        let session = Arc::clone(&contender.session);
        let queue = queue::list_synced("attempt", &session, &contender.lock_path).await?;
        if let Some(name) = queue::find(&queue, &contender.prefix) {
            if contender.node.is_none() {
                let stat = session.client().check_stat(&contender.path(&name)).await;
                let stat = stat.map_err(|error| of_request("attempt", &error))?;
                let ours = stat.filter(|stat| stat.ephemeral_owner == session.id());
                let czxid = ours.ok_or_else(vanished)?.czxid;
                contender.node = Some(Node { name, czxid });
            }
            contender.unanswered = false;
            self.set(ticket.holder, Some(contender.clone()));
            return Ok(Some(queue));
        }
        if contender.unanswered {
            self.delete_late(contender);
        }
        *contender = self.new_contender(ticket, &session);
        Ok(None)
    }

    /// Creates the node and lists the queue, in one pipelined round trip.
    async fn create(
        &self,
        ticket: &Ticket,
        contender: &mut Contender,
    ) -> Result<Vec<String>, BackendError> {
        let session = Arc::clone(&contender.session);
        let client = session.client();
        let options = options(CreateMode::EphemeralSequential, self.access);
        let path = contender.path(&contender.prefix);
        let data = ticket.holder.to_string();
        let mut creates = 0;
        let ((stat, number), sent, children) = loop {
            // Before the request is sent, so that a ticket whose caller gives up now is not forgotten.
            contender.unanswered = true;
            if self.is_released(ticket.holder) || !self.set(ticket.holder, Some(contender.clone()))
            {
                return Err(released());
            }
            let sent = session.now();
            let create = client.create(&path, data.as_bytes(), &options);
            let children = client.list_children(&contender.lock_path);
            match create.await {
                Ok(created) => break (created, sent, children),
                Err(error) => {
                    contender.unanswered = outcome(&error) == Outcome::Indeterminate;
                    let unanswered = contender.unanswered.then(|| contender.clone());
                    self.set(ticket.holder, unanswered);
                    if error != Error::NoNode || creates == CREATES {
                        return Err(of_request("attempt", &error));
                    }
                    creates += 1;
                    let made = session.make(&contender.lock_path, self.access).await;
                    made.map_err(|error| of_request("attempt", &error))?;
                }
            }
        };
        session.acknowledge(sent);
        contender.node = Some(Node {
            name: format!("{}{number}", contender.prefix),
            czxid: stat.czxid,
        });
        contender.unanswered = false;
        self.set(ticket.holder, Some(contender.clone()));
        if self.is_released(ticket.holder) {
            // The release came in between and may not have seen the node.
            self.delete_own("attempt", contender).await?;
            return Err(released());
        }
        queue::read("attempt", client, &contender.lock_path, children).await
    }
}

/// Whether a waiter's node and the one before it are still there. Then the queue need not be listed, which
/// is the cost of many waiters.
async fn still_waits(contender: &Contender) -> Result<bool, BackendError> {
    let next = contender.predecessors.as_ref().map(Predecessors::next);
    let (false, Some(own), Some(Next::Watch([nearest, ..]))) =
        (contender.granted, contender.own_path(), next)
    else {
        return Ok(false);
    };
    let session = &contender.session;
    let client = session.client();
    let heartbeat = session.heartbeat("attempt");
    let stats = [own, contender.path(nearest)].map(|path| client.check_stat(&path));
    heartbeat.await?;
    for stat in stats {
        let stat = stat.await.map_err(|error| of_request("attempt", &error))?;
        if stat.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn released() -> BackendError {
    let why = "the ticket was released before";
    fault("attempt", Outcome::Rejected, why)
}

/// Its node was deleted at once, or belongs to another session. The client tries again.
fn vanished() -> BackendError {
    let why = "another client deleted the node of the ticket";
    fault("attempt", Outcome::Indeterminate, why)
}
