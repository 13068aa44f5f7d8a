//! The task that watches the node of a ticket and the nearest before it that may block it.
//!
//! When the last one that blocks it goes, the ticket has the lock: a hand-off costs one event and no request.
//! One more is watched than can block it, so that the queue is listed again before that, while there is time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use lockkit_core::store::Backoff;
use lockkit_core::store::predecessors::Next;
use lockkit_core::store::waiters::Entry;
use lockkit_core::{BackendError, HolderId, LossReason, Outcome};
use tokio::select;
use tokio::task::JoinSet;
use tokio::time::timeout;
use zookeeper_client::{EventType, StateWatcher, WatchedEvent};

use crate::error::{Result, fault};
use crate::keys;
use crate::queue;
use crate::session::{Session, Watched};
use crate::shared::Shared;
use crate::waiters::{Node, TicketState};

/// The longest that the task waits to learn why its node was deleted, before it reports the loss anyway.
const DOUBT: Duration = Duration::from_millis(500);
/// The shortest and the longest pause after a request that failed. The waiter's attempts, one every
/// `recheck`, report an error that lasts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));

struct NodeWatch {
    /// Weak, because the store has the task.
    shared: Weak<Shared>,
    holder: HolderId,
    session: Arc<Session>,
    lock_path: String,
    /// What the attempt has listed is enough: no node comes to stand before its own.
    node: Node,
    /// Its own comes last: of two that have been reported, the later one may be polled first.
    open: Vec<OpenWatch>,
    /// Changes when the connection is lost: events that come after it have no order.
    states: StateWatcher,
    session_ended: bool,
    /// Reset when all watches are open.
    backoff: Backoff,
}

/// A watch that the server knows of.
struct OpenWatch {
    node: String,
    event: Pin<Box<dyn Future<Output = WatchedEvent> + Send>>,
    /// Whether the deletion of the node frees its place, and tells nothing else.
    conclusive: bool,
    _counted: Watched,
}

impl Shared {
    /// Watches the node of a ticket from now on.
    pub(crate) async fn watch_node(self: &Arc<Self>, holder: HolderId) -> Result<()> {
        let contender = self.contender(holder).ok_or_else(unknown)?;
        let mut watch = NodeWatch {
            shared: Arc::downgrade(self),
            holder,
            lock_path: contender.lock_path,
            node: contender.node.ok_or_else(unknown)?,
            open: Vec::new(),
            states: contender.session.client.state_watcher(),
            session_ended: contender.session.has_ended(),
            backoff: Backoff::new(PAUSES.0, PAUSES.1),
            session: contender.session,
        };
        if !watch.session_ended {
            watch.open().await?;
        }
        let mut watcher = JoinSet::new();
        watcher.spawn_on(watch.run(), &self.sessions.runtime);
        // Replaces a former watcher, which is dropped outside.
        let replace =
            |entry: &mut Entry<TicketState>| std::mem::replace(&mut entry.data.watcher, watcher);
        let former = self.waiters.with(holder, replace);
        former.map(drop).ok_or_else(unknown)
    }
}

impl NodeWatch {
    /// Reports the grant and the loss of the ticket.
    async fn run(mut self) {
        let lost = loop {
            match self.until_gone().await {
                Ok(lost) => break lost,
                Err(_) if self.session.has_ended() => break Some(LossReason::SessionEnded),
                Err(_) => {
                    // What is watched is read on: the session may have no room for more watches for long.
                    let pause = self.backoff.pause();
                    drop(timeout(pause, self.events()).await);
                }
            }
        };
        if let (Some(reason), Some(shared)) = (lost, self.shared.upgrade()) {
            shared.waiters.with(self.holder, |entry| entry.lost(reason));
        }
    }

    /// Follows the queue until the node is gone; `None` if the ticket was released.
    async fn until_gone(&mut self) -> Result<Option<LossReason>> {
        loop {
            if self.session_ended {
                return Ok(Some(LossReason::SessionEnded));
            }
            match self.node.predecessors.next() {
                Next::Gone if self.is_released() => return Ok(None),
                Next::Gone => return Ok(Some(why_deleted(&self.session).await)),
                Next::List => {
                    self.list().await?;
                    continue;
                }
                Next::Turn if !self.node.granted => self.grant(),
                Next::Turn | Next::Watch(_) => {}
            }
            if self.open().await? {
                self.backoff.reset();
                if self.node.granted {
                    self.events().await;
                } else if timeout(self.session.period(), self.events()).await.is_err() {
                    self.session.keep_young("watch").await?;
                }
            }
        }
    }

    fn is_released(&self) -> bool {
        let shared = self.shared.upgrade();
        shared.is_none_or(|shared| shared.waiters.is_refused(self.holder))
    }

    async fn list(&mut self) -> Result<()> {
        self.session.connected("watch").await?;
        // What happens from here on is newer than the listing.
        self.states.state();
        let queue = queue::list("watch", &self.session, &self.lock_path).await?;
        self.node.predecessors.listed(queue, false);
        Ok(())
    }

    /// Opens the watches that are needed and keeps those that are open already. Returns whether all these
    /// nodes are there.
    async fn open(&mut self) -> Result<bool> {
        // The own watch comes first: if its node is deleted and then another, its event comes first.
        let mut missing = vec![self.node.name().to_owned()];
        if let Next::Watch(nearest) = self.node.predecessors.next() {
            missing.extend_from_slice(nearest);
        }
        self.open.retain(|watch| missing.contains(&watch.node));
        missing.retain(|node| !self.open.iter().any(|open| open.node == *node));
        if missing.is_empty() {
            return Ok(true);
        }
        self.session.connected("watch").await?;
        // Sends all requests before it waits for the first answer.
        let client = &self.session.client;
        let counted = missing.into_iter().map(|node| {
            let path = format!("{}/{node}", self.lock_path);
            Ok((self.session.watching(path)?, node))
        });
        let counted: Vec<_> = counted.collect::<Result<_>>()?;
        let ask = |(counted, node): (Watched, String)| {
            (client.check_and_watch_stat(counted.path()), node, counted)
        };
        let asked: Vec<_> = counted.into_iter().map(ask).collect();
        let mut all_there = true;
        for (answer, node, counted) in asked {
            let answer = answer
                .await
                .map_err(|error| self.session.error("watch", &error))?;
            let is_own = node == self.node.name();
            if let (Some(stat), watcher) = answer {
                // The end of our session removes our node and its others in one step. A writer of
                // Curator may leave a reader's node with its number behind.
                let alone =
                    stat.ephemeral_owner != self.session.id() && !keys::may_become_reader(&node);
                let event = Box::pin(watcher.changed());
                self.open.push(OpenWatch {
                    node,
                    event,
                    conclusive: is_own || alone,
                    _counted: counted,
                });
            } else {
                all_there = false;
                match is_own {
                    true => self.node.predecessors.deleted(&node),
                    false => self.node.predecessors.invalidate(),
                }
            }
        }
        Ok(all_there)
    }

    /// Waits for an event and takes in all that have come.
    async fn events(&mut self) {
        let Self { open, node, .. } = self;
        open.sort_by_key(|watch| watch.node == node.name());
        poll_fn(|context| {
            let before = open.len();
            open.retain_mut(|watch| {
                let Poll::Ready(event) = watch.event.as_mut().poll(context) else {
                    return true;
                };
                match event.event_type {
                    EventType::NodeDeleted if watch.conclusive => {
                        node.predecessors.deleted(&watch.node);
                    }
                    EventType::NodeDeleted => node.predecessors.invalidate(),
                    EventType::Session => self.session_ended = true,
                    // Before the watch of the own node is open again, it may go, and then what blocks it.
                    _ if watch.node == node.name() && !node.granted => {
                        node.predecessors.invalidate();
                    }
                    // The data of the node changed. Its watch is opened anew.
                    _ => {}
                }
                false
            });
            match open.len() < before {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        let disconnected = select! {
            biased;
            _ = self.states.changed() => true,
            () = std::future::ready(()) => false,
        };
        if disconnected {
            self.node.predecessors.invalidate();
        }
    }

    /// No predecessor is left that blocks it.
    fn grant(&mut self) {
        self.node.granted = true;
        if let Some(shared) = self.shared.upgrade() {
            let grant = shared.grant(&self.session, &self.node);
            shared.waiters.with(self.holder, |entry| {
                let node = entry.data.contender.as_mut();
                let node = node.and_then(|contender| contender.node.as_mut());
                // A later attempt may have another node.
                if let Some(node) = node.filter(|node| node.czxid == self.node.czxid) {
                    node.granted = true;
                    entry.granted(None, grant);
                }
            });
        }
    }
}

fn unknown() -> BackendError {
    let why = "the ticket has no node that is known";
    fault("watch", Outcome::Unavailable, why)
}

/// Whether another client deleted our node or the end of the session did: its nodes go first, and then the
/// server closes the connection, which a deletion by another client leaves open.
async fn why_deleted(session: &Session) -> LossReason {
    // One round trip if the connection is sound. One that has just reported the deletion and is silent
    // now is about to be closed.
    match timeout(DOUBT, session.client.sync("/")).await {
        Ok(Ok(_)) if !session.has_ended() => LossReason::Superseded,
        _ => LossReason::SessionEnded,
    }
}
