//! Taking a place in the queue of a lock, finding it again after a lost answer, and leaving it.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use lockkit_core::backend::{Attempt, Release, Ticket};
use lockkit_core::{BackendError, Outcome};
use tokio::time::sleep;
use zookeeper_client::{CreateMode, Error};

use crate::backend::Inner;
use crate::error::{fault, of_request, outcome};
use crate::queue::Queue;
use crate::session::{Session, options};
use crate::waiters::{Node, Place, Turn};

/// After this time nothing is on its way any more.
const LATE: Duration = Duration::from_secs(2);
/// How often the parent of a queue is made before it is believed that somebody keeps removing it.
const MAKES: u32 = 5;

/// What an attempt finds.
enum Step {
    /// A queue in which its node stands.
    Stands(Queue),
    /// No node: one is to be made.
    Absent,
}

impl Inner {
    pub(crate) async fn attempt(&self, ticket: &Ticket) -> Result<Attempt, BackendError> {
        let turn = self.enter(ticket).ok_or_else(released)?;
        let _turn = turn.lock().await;
        if self.is_gone(ticket) {
            return Err(released());
        }
        let known = self.places.of(ticket.holder);
        let answer = match self.attempt_in_turn(ticket, known).await {
            Err(error) => Err(self.of_step(ticket, error).await),
            answer => answer,
        };
        // What answers like these leave nothing behind, and the client forgets the ticket.
        let forgets = match &answer {
            Ok(Attempt::Held { .. }) => !ticket.enqueue,
            Ok(_) => false,
            Err(error) => error.outcome() != Outcome::Indeterminate,
        };
        if forgets {
            self.places.leave(ticket.holder);
        }
        answer
    }

    /// The error of a step one of whose requests failed: while its node may stand, the step may have been
    /// carried out, whatever that request was answered.
    async fn of_step(&self, ticket: &Ticket, error: BackendError) -> BackendError {
        let Some(place) = self.places.of(ticket.holder) else {
            return error;
        };
        // What is refused for good is told at once, and then nothing may stand.
        let refused = error.outcome() == Outcome::Rejected && place.node.is_some();
        if refused && self.delete_own("attempt", &place).await.is_ok() {
            self.places.put(ticket.holder, None);
            return error;
        }
        let why = error.source().map(ToString::to_string);
        fault("attempt", Outcome::Indeterminate, why.unwrap_or_default())
    }

    async fn attempt_in_turn(
        &self,
        ticket: &Ticket,
        known: Option<Place>,
    ) -> Result<Attempt, BackendError> {
        let session = self.sessions.live("attempt").await?;
        // The node of an ended session has gone with it.
        let known = known.filter(|place| Arc::ptr_eq(&place.session, &session));
        let mut place = known.unwrap_or_else(|| self.new_place(ticket, &session));
        self.take(ticket, &mut place).await
    }

    fn new_place(&self, ticket: &Ticket, session: &Arc<Session>) -> Place {
        let dir = self.keys.of(&ticket.name);
        Place::new(Arc::clone(session), dir, self.keys.new_prefix())
    }

    async fn take(&self, ticket: &Ticket, place: &mut Place) -> Result<Attempt, BackendError> {
        if still_waits(place).await? {
            return Ok(Attempt::held());
        }
        let mut step = if place.node.is_some() || place.unsure {
            self.find_again(ticket, place).await?
        } else if ticket.enqueue {
            Step::Absent
        } else {
            // A try makes a node only where it seems to be the first.
            let queue = synced(place, "attempt").await?;
            if !queue.is_empty() {
                return Ok(Attempt::held());
            }
            Step::Absent
        };
        if matches!(step, Step::Absent) {
            step = self.create(ticket, place).await?;
        }
        let Step::Stands(queue) = step else {
            return Err(vanished());
        };
        let own = place.node.as_ref().and_then(|node| queue.place(&node.name));
        match (own, &place.node) {
            (Some(0), Some(node)) => {
                let grant = self.grant(&place.session, node)?;
                place.granted = true;
                self.places.put(ticket.holder, Some(place.clone()));
                Ok(Attempt::Granted(grant))
            }
            (Some(ahead), _) if ticket.enqueue => {
                let (near, far) = queue.before(ahead);
                place.before = Some((near.map(str::to_owned), far.map(str::to_owned)));
                self.places.put(ticket.holder, Some(place.clone()));
                Ok(Attempt::held())
            }
            (Some(_), _) => {
                // Somebody was faster. A try leaves nothing behind.
                self.delete_own("attempt", place).await?;
                self.places.forget(ticket.holder);
                Ok(Attempt::held())
            }
            (None, _) => Err(vanished()),
        }
    }

    /// Looks for the node of a ticket that has one, or may have one.
    async fn find_again(&self, ticket: &Ticket, place: &mut Place) -> Result<Step, BackendError> {
        let queue = synced(place, "attempt").await?;
        if let Some(node) = queue.find(&place.prefix).map(str::to_owned) {
            if place.node.is_none() {
                let path = place.path(&node);
                let stat = place.session.client().check_stat(&path).await;
                let stat = stat.map_err(|error| of_request("attempt", &error))?;
                let ours = stat.filter(|stat| stat.ephemeral_owner == place.session.id());
                let stat = ours.ok_or_else(vanished)?;
                place.node = Some(Node {
                    name: node,
                    czxid: stat.czxid,
                });
            }
            place.unsure = false;
            self.places.put(ticket.holder, Some(place.clone()));
            return Ok(Step::Stands(queue));
        }
        if place.unsure {
            self.look_again(place);
        }
        *place = self.new_place(ticket, &place.session);
        Ok(Step::Absent)
    }

    /// Makes a node and lists the queue, in one breath.
    async fn create(&self, ticket: &Ticket, place: &mut Place) -> Result<Step, BackendError> {
        let session = Arc::clone(&place.session);
        let client = session.client();
        let made = options(CreateMode::EphemeralSequential, self.access);
        let (path, data) = (place.path(&place.prefix), ticket.holder.to_string());
        let mut makes = 0;
        let (created, sent, children) = loop {
            // Before it is handed over, so that a caller who gives up now is not forgotten.
            place.unsure = true;
            if self.is_gone(ticket) || !self.places.put(ticket.holder, Some(place.clone())) {
                return Err(released());
            }
            let sent = session.now();
            let create = client.create(&path, data.as_bytes(), &made);
            let list = client.list_children(&place.dir);
            match create.await {
                Ok(created) => break (created, sent, list),
                Err(error) => {
                    place.unsure = outcome(&error) == Outcome::Indeterminate;
                    self.places
                        .put(ticket.holder, place.unsure.then(|| place.clone()));
                    if error != Error::NoNode || makes == MAKES {
                        return Err(of_request("attempt", &error));
                    }
                    makes += 1;
                    let done = session.make(&place.dir, self.access).await;
                    done.map_err(|error| of_request("attempt", &error))?;
                }
            }
        };
        session.acknowledge(sent);
        let (stat, number) = created;
        place.node = Some(Node {
            name: format!("{}{number}", place.prefix),
            czxid: stat.czxid,
        });
        place.unsure = false;
        self.places.put(ticket.holder, Some(place.clone()));
        if self.is_gone(ticket) {
            // Its release came in between and may not have seen the node.
            self.delete_own("attempt", place).await?;
            return Err(released());
        }
        let queue = Queue::read("attempt", client, &place.dir, children).await?;
        Ok(queue.map_or(Step::Absent, Step::Stands))
    }

    /// Ends the hold of a ticket, or takes it out of the queue.
    pub(crate) async fn release(&self, ticket: &Ticket) -> Result<Release, BackendError> {
        let turn = self.places.bury(ticket.holder);
        let _turn = match &turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        #[cfg(feature = "mutants")]
        if let Some(answer) = self.broken_release(ticket).await {
            return answer;
        }
        let Some(mut place) = self.places.of(ticket.holder) else {
            self.places.forget(ticket.holder);
            return Ok(Release::NotHeld);
        };
        if place.session.has_ended() {
            self.places.forget(ticket.holder);
            return Ok(Release::NotHeld);
        }
        place.session.connected("release").await?;
        let doubtful = place.node.is_none();
        if doubtful {
            let queue = synced(&place, "release").await?;
            let node = queue.find(&place.prefix).map(str::to_owned);
            place.node = node.map(|name| Node { name, czxid: 0 });
        }
        let deleted = place.node.is_some() && self.delete_own("release", &place).await?;
        self.places.forget(ticket.holder);
        if doubtful && !deleted {
            self.look_again(&place);
        }
        Ok(if deleted && place.granted {
            Release::Released
        } else {
            Release::NotHeld
        })
    }

    /// Deletes, a while after a create without an answer was not found, the node that it made since.
    ///
    /// A server refuses what comes late on a connection that was replaced, but one that stalls between
    /// reading a request and queueing it can let the request pass those of the next connection. The
    /// living session would keep such a node for ever.
    fn look_again(&self, place: &Place) {
        // A session that nobody has any more is closed, and not kept for this.
        let session = Arc::downgrade(&place.session);
        let (dir, prefix) = (place.dir.clone(), place.prefix.clone());
        self.sessions.spawn(async move {
            loop {
                sleep(LATE).await;
                let session = session.upgrade().filter(|session| !session.has_ended());
                let Some(session) = session else { return };
                if delete_late(Place::new(session, dir.clone(), prefix.clone()))
                    .await
                    .is_ok()
                {
                    return;
                }
            }
        });
    }

    /// Deletes the node of a place; answers whether it was there.
    async fn delete_own(
        &self,
        operation: &'static str,
        place: &Place,
    ) -> Result<bool, BackendError> {
        let Some(path) = place.own_path() else {
            return Ok(false);
        };
        let client = place.session.client();
        let sent = place.session.now();
        let deleted = match client.delete(&path, None).await {
            Ok(()) => true,
            Err(Error::NoNode) => false,
            Err(error) => return Err(of_request(operation, &error)),
        };
        place.session.acknowledge(sent);
        Ok(deleted)
    }

    fn enter(&self, ticket: &Ticket) -> Option<Arc<Turn>> {
        #[cfg(feature = "mutants")]
        if self.mutant == Some(crate::ZkMutant::LateRequestMakesGhost) {
            self.places.raise();
        }
        self.places.enter(ticket.holder)
    }

    fn is_gone(&self, ticket: &Ticket) -> bool {
        #[cfg(feature = "mutants")]
        if self.mutant == Some(crate::ZkMutant::LateRequestMakesGhost) {
            return false;
        }
        self.places.is_gone(ticket.holder)
    }
}

async fn delete_late(place: Place) -> Result<(), BackendError> {
    place.session.connected("release").await?;
    let queue = synced(&place, "release").await?;
    let Some(node) = queue.find(&place.prefix) else {
        return Ok(());
    };
    let deleted = place.session.client().delete(&place.path(node), None).await;
    match deleted {
        Ok(()) | Err(Error::NoNode) => Ok(()),
        Err(error) => Err(of_request("release", &error)),
    }
}

/// The queue as the leader knows it: whatever was handed over before is seen.
async fn synced(place: &Place, operation: &'static str) -> Result<Queue, BackendError> {
    let session = &place.session;
    let client = session.client();
    let sent = session.now();
    let sync = client.sync("/");
    let children = client.list_children(&place.dir);
    sync.await.map_err(|error| of_request(operation, &error))?;
    session.acknowledge(sent);
    let queue = Queue::read(operation, client, &place.dir, children).await?;
    Ok(queue.unwrap_or_default())
}

/// Whether a waiter's node and the one before it are still there. Then nobody needs to list the queue,
/// which is what many waiters cost.
async fn still_waits(place: &Place) -> Result<bool, BackendError> {
    let (false, Some(own), Some((Some(near), _))) =
        (place.granted, place.own_path(), &place.before)
    else {
        return Ok(false);
    };
    let session = &place.session;
    let client = session.client();
    let sent = session.now();
    let sync = client.sync("/");
    let stats = [own, place.path(near)].map(|path| client.check_stat(&path));
    let failed = |error| of_request("attempt", &error);
    sync.await.map_err(failed)?;
    session.acknowledge(sent);
    for stat in stats {
        if stat.await.map_err(failed)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn released() -> BackendError {
    fault(
        "attempt",
        Outcome::Rejected,
        "the ticket was released before",
    )
}

/// Its node was deleted as soon as it was made, or is another session's. The client asks again.
fn vanished() -> BackendError {
    let why = "the node of the ticket was deleted by somebody else";
    fault("attempt", Outcome::Indeterminate, why)
}
