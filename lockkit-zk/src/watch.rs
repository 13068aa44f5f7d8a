//! The watch of one ticket: its own node and the two nearest before it.
//!
//! The nearest one's end is the grant when nobody stood before it: nothing that comes later is
//! numbered lower. The second one's end is looked after beside the critical path, so that a hand-off
//! costs one event and no question.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::backend::{Wake, Watch};
use lockkit_core::{BackendError, HolderId, LossReason, Outcome};
use tokio::select;
use tokio::time::timeout;
use zookeeper_client::{Client, EventType, StateWatcher, WatchedEvent};

use crate::backend::Inner;
use crate::error::{fault, of_request};
use crate::keys;
use crate::queue::Queue;
use crate::session::Session;
use crate::waiters::{Node, Place};

/// How long a slow server is asked why a node was deleted, before the loss is told anyway.
const DOUBT: Duration = Duration::from_millis(500);

/// The end of one node, or of the session.
type Event = Pin<Box<dyn Future<Output = WatchedEvent> + Send>>;
type Step = Pin<Box<dyn Future<Output = (Result<Wake, BackendError>, Sight)> + Send>>;

/// A watch that goes on where it stopped, whoever polls it.
pub(crate) struct Running(Step);

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

/// The wake-ups of one ticket.
pub(crate) struct ZkWatch {
    inner: Arc<Inner>,
    holder: HolderId,
    running: Option<Running>,
}

impl ZkWatch {
    pub(crate) fn new(inner: &Arc<Inner>, holder: HolderId, sight: Sight) -> Self {
        Self {
            inner: Arc::clone(inner),
            holder,
            running: Some(Running(Box::pin(sight.next()))),
        }
    }
}

#[async_trait]
impl Watch for ZkWatch {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        let Some(Running(step)) = &mut self.running else {
            return Err(closed());
        };
        let (wake, sight) = step.as_mut().await;
        self.running = Some(Running(Box::pin(sight.next())));
        wake
    }
}

impl Drop for ZkWatch {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.inner.places.park(self.holder, running);
        }
    }
}

impl fmt::Debug for ZkWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ZkWatch").field(&self.holder).finish()
    }
}

fn closed() -> BackendError {
    fault("watch", Outcome::Unavailable, "the watch has ended")
}

/// What a watch sees.
pub(crate) struct Sight {
    /// Weak, because what is parked belongs to the store.
    inner: Weak<Inner>,
    holder: HolderId,
    place: Place,
    node: Node,
    own: Option<Event>,
    near: Option<Before>,
    far: Option<Before>,
    /// Moves when the connection was lost: events that come after it have no order.
    states: StateWatcher,
    /// Whether the queue must be listed before the next event counts.
    stale: bool,
    end: Option<LossReason>,
}

/// One that stands before us.
struct Before {
    node: String,
    gone: Event,
    /// Whether its end is the grant, if nobody stood before it. The end of our session takes our node
    /// and another of it in one step, and which of them is told first is chance. A writer of Curator's
    /// may leave a reader's node with its number behind.
    grants: bool,
}

/// What happened.
enum Seen {
    Own(WatchedEvent),
    Near(WatchedEvent, bool),
    Far,
}

impl Sight {
    /// Opens a watch for a ticket with a node.
    pub(crate) async fn open(
        inner: &Arc<Inner>,
        holder: HolderId,
        place: Place,
        node: Node,
    ) -> Result<Self, BackendError> {
        let session = Arc::clone(&place.session);
        let mut sight = Self {
            inner: Arc::downgrade(inner),
            holder,
            node,
            own: None,
            near: None,
            far: None,
            states: session.client().state_watcher(),
            stale: !place.granted,
            end: session.has_ended().then_some(LossReason::SessionEnded),
            place,
        };
        if sight.end.is_none() {
            // What the attempt saw is as good as a list of our own: nobody comes to stand before us.
            let before = sight.place.before.take().filter(|_| sight.stale);
            let (near, far) = before.unwrap_or_default();
            sight.stale &= near.is_none();
            sight.ask(near, far).await?;
        }
        Ok(sight)
    }

    /// The next wake-up.
    async fn next(mut self) -> (Result<Wake, BackendError>, Self) {
        let wake = self.look().await;
        let wake = match wake {
            // A session that has ended ends everything, whatever became of the request.
            Err(_) if self.place.session.has_ended() => {
                self.end = Some(LossReason::SessionEnded);
                Ok(Wake::Lost(LossReason::SessionEnded))
            }
            wake => wake,
        };
        (wake, self)
    }

    async fn look(&mut self) -> Result<Wake, BackendError> {
        loop {
            if let Some(reason) = self.end {
                return Ok(Wake::Lost(reason));
            }
            if self.own.is_none() {
                let (near, far) = (self.near.as_ref(), self.far.as_ref());
                let (near, far) = (near.map(Before::name), far.map(Before::name));
                self.ask(near, far).await?;
                continue;
            }
            if self.stale {
                if let Some(wake) = self.list().await? {
                    return Ok(wake);
                }
                continue;
            }
            match self.event().await {
                Seen::Own(event) => self.own_changed(&event).await,
                Seen::Far => self.stale = true,
                Seen::Near(event, grants) => {
                    let deleted = event.event_type == EventType::NodeDeleted && grants;
                    // Between two polls both may have come, ours first.
                    self.poll_own().await;
                    self.stale |= self.was_disconnected().await;
                    if self.end.is_some() || self.own.is_none() {
                        self.stale = true;
                    } else if deleted && self.far.is_none() && !self.stale {
                        if let Some(wake) = self.granted() {
                            return Ok(wake);
                        }
                    } else {
                        self.stale = true;
                    }
                }
            }
        }
    }

    async fn event(&mut self) -> Seen {
        let never = || std::future::pending::<WatchedEvent>();
        let (own, near, far) = (&mut self.own, &mut self.near, &mut self.far);
        let seen = select! {
            biased;
            event = async { match own { Some(own) => own.await, None => never().await } } => Seen::Own(event),
            event = async { match near { Some(near) => ((&mut near.gone).await, near.grants), None => (never().await, false) } } => Seen::Near(event.0, event.1),
            _ = async { match far { Some(far) => (&mut far.gone).await, None => never().await } } => Seen::Far,
        };
        match &seen {
            Seen::Own(_) => self.own = None,
            Seen::Near(..) => self.near = None,
            Seen::Far => self.far = None,
        }
        seen
    }

    /// Takes an event of our own node that has come already.
    async fn poll_own(&mut self) {
        let Some(own) = &mut self.own else { return };
        let event = select! {
            biased;
            event = own => Some(event),
            () = std::future::ready(()) => None,
        };
        if let Some(event) = event {
            self.own = None;
            self.own_changed(&event).await;
        }
    }

    async fn was_disconnected(&mut self) -> bool {
        select! {
            biased;
            _ = self.states.changed() => true,
            () = std::future::ready(()) => false,
        }
    }

    async fn own_changed(&mut self, event: &WatchedEvent) {
        match event.event_type {
            EventType::NodeDeleted => {
                let session = Arc::clone(&self.place.session);
                self.end = Some(why_deleted(&session).await);
            }
            EventType::Session => self.end = Some(LossReason::SessionEnded),
            // Somebody wrote into it, which asks for nothing but another watch.
            _ => {}
        }
    }

    /// Lists the queue and watches the two nearest before us.
    async fn list(&mut self) -> Result<Option<Wake>, BackendError> {
        let inner = self.inner.upgrade().ok_or_else(closed)?;
        let known = inner.places.of(self.holder);
        if known.is_some_and(|place| place.granted) {
            // The client's own attempt found out.
            (self.near, self.far, self.stale) = (None, None, false);
            return Ok(None);
        }
        let session = Arc::clone(&self.place.session);
        session.connected("watch").await?;
        // What happens from here on is newer than the list.
        self.states.state();
        let client = session.client();
        let children = client.list_children(&self.place.dir);
        let queue = Queue::read("watch", client, &self.place.dir, children).await?;
        let queue = queue.unwrap_or_default();
        let Some(place) = queue.place(&self.node.name) else {
            self.end = Some(why_deleted(&session).await);
            return Ok(None);
        };
        let (near, far) = queue.before(place);
        let Some(near) = near else {
            (self.near, self.far, self.stale) = (None, None, false);
            return Ok(self.granted());
        };
        let (near, far) = (Some(near.to_owned()), far.map(str::to_owned));
        self.stale = false;
        self.ask(near, far).await?;
        Ok(None)
    }

    /// Watches our own node and those two, keeping the watches that are open already. Our own comes
    /// first: where it is deleted and then another, its own end is heard first. One of the others
    /// that is not there means that the list is old.
    async fn ask(&mut self, near: Option<String>, far: Option<String>) -> Result<(), BackendError> {
        let session = Arc::clone(&self.place.session);
        session.connected("watch").await?;
        let client = session.client();
        let mut open: Vec<Before> = [self.near.take(), self.far.take()]
            .into_iter()
            .flatten()
            .collect();
        // All are asked before the first answer is waited for.
        let own = self
            .own
            .is_none()
            .then(|| watched(client, &self.place.path(&self.node.name)));
        let mut before = [near, far].map(|node| {
            let node = node?;
            let kept = open.iter().position(|before| before.node == node);
            Some(match kept.map(|at| open.swap_remove(at)) {
                Some(kept) => Asked::Open(kept),
                None => Asked::Asked(watched(client, &self.place.path(&node)), node),
            })
        });
        if let Some(own) = own {
            self.own = own.await?.map(|(own, _)| own);
            if self.own.is_none() {
                self.end = Some(why_deleted(&session).await);
            }
        }
        for (asked, slot) in before.iter_mut().zip([&mut self.near, &mut self.far]) {
            *slot = match asked.take() {
                None => None,
                Some(Asked::Open(kept)) => Some(kept),
                Some(Asked::Asked(asked, node)) => {
                    let found = asked.await?;
                    self.stale |= found.is_none();
                    found.map(|(gone, owner)| {
                        let grants = owner != session.id() && !keys::is_writer(&node);
                        Before { node, gone, grants }
                    })
                }
            };
        }
        Ok(())
    }

    /// Nobody stands before us.
    fn granted(&self) -> Option<Wake> {
        let inner = self.inner.upgrade()?;
        // Released, or begun anew: whoever did so does not look here any more.
        let granted = inner.places.grant(self.holder, &self.node);
        let grant = granted.then(|| inner.grant(&self.place.session, &self.node))?;
        grant.ok().map(Wake::Granted)
    }
}

/// Whether somebody deleted our node, or the end of the session did: its nodes go first, and then the
/// server closes the connection, which a deletion by somebody else does not touch.
async fn why_deleted(session: &Session) -> LossReason {
    // One round trip, if the connection is as it was. One that has just brought the news and is silent
    // now is about to be closed.
    match timeout(DOUBT, session.client().sync("/")).await {
        Ok(Ok(_)) if !session.has_ended() => LossReason::Superseded,
        _ => LossReason::SessionEnded,
    }
}

/// A question for one that stands before us, or the watch on it that is open already.
enum Asked<F> {
    Open(Before),
    Asked(F, String),
}

impl Before {
    fn name(&self) -> String {
        self.node.clone()
    }
}

/// Asks for a watch, at once, and for the session that the node belongs to; `None` if it is not there.
fn watched<'a>(
    client: &'a Client,
    path: &str,
) -> impl Future<Output = Result<Option<(Event, i64)>, BackendError>> + Send + use<'a> {
    let asked = client.check_and_watch_stat(path);
    async move {
        let (stat, watcher) = asked.await.map_err(|error| of_request("watch", &error))?;
        Ok(stat.map(|stat| {
            let event: Event = Box::pin(watcher.changed());
            (event, stat.ephemeral_owner)
        }))
    }
}
