//! The nodes of a store, and what is asked of all of them at once.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lockkit_core::store::of_break;
use lockkit_core::store::waiters::Waiters;
use lockkit_core::{Capabilities, Outcome};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::quorum::{failure, majority, refused, silent};
use super::sent::Sent;
use crate::admission::{Admission, boot_micros};
use crate::backend::RedisStore;
use crate::connection::State;
use crate::error::Result;
use crate::reply::Reply;
use crate::route::Route;

/// How long opening waits for the other nodes, once it has a majority: their lists may differ from ours.
const OTHERS: Duration = Duration::from_millis(200);
const TWINS: &str = "two names in the list lead to one server, which would count twice";

/// A store of its own, in one server.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) store: RedisStore,
    pub(crate) route: Route,
}

impl Node {
    pub(crate) fn of(store: RedisStore) -> Option<Self> {
        let route = Route::to(store.masters.links().pop()?);
        Some(Self { store, route })
    }
}

pub(crate) struct Nodes {
    pub(crate) all: Vec<Node>,
    pub(crate) rules: Capabilities,
    /// The longest that nodes are waited for.
    pub(crate) patience: Duration,
    /// How often each ticket gave nodes up, and its attempts since.
    pub(crate) tickets: Waiters<Option<(u64, Arc<Sent>)>>,
    /// By how much the largest clock or token of any node is ahead of the boot clock, in microseconds.
    ahead: AtomicI64,
    pub(crate) runtime: Handle,
}

impl Nodes {
    /// Waits for a majority, and a little for the others.
    pub(crate) async fn open(
        all: Vec<Node>,
        rules: Capabilities,
        patience: Duration,
        runtime: Handle,
    ) -> Result<Self> {
        let needed = majority(all.len());
        let admissions = all.iter().map(|node| node.route.link.admission("connect"));
        let mut opening: FuturesUnordered<_> = admissions.collect();
        let (mut open, mut errors) = (Vec::<Admission>::new(), Vec::new());
        while open.len() + opening.len() >= needed {
            let limit = match open.len() >= needed {
                true => OTHERS,
                false => Duration::MAX,
            };
            match timeout(limit, opening.next()).await {
                Ok(Some(Ok(admission))) => open.push(admission),
                Ok(Some(Err(error))) if error.outcome() == Outcome::Rejected => return Err(error),
                Ok(Some(Err(error))) => errors.push(error),
                Ok(None) | Err(_) => break,
            }
        }
        drop(opening);
        if open.len() < needed {
            return Err(failure("connect", all.len(), errors));
        }
        let ahead = open.iter().map(|admission| admission.ahead).max();
        let nodes = Self {
            tickets: Waiters::default(),
            all,
            rules,
            patience,
            ahead: AtomicI64::new(ahead.unwrap_or(0)),
            runtime,
        };
        (0..nodes.all.len()).try_for_each(|at| nodes.check_twin("connect", at))?;
        Ok(nodes)
    }

    /// Fails if a node before this one is the same server.
    pub(crate) fn check_twin(&self, operation: &'static str, at: usize) -> Result<()> {
        let run = |node: &Node| match &*node.route.link.state.borrow() {
            // A node that is in quarantine for ever does not say which server it is.
            State::Ready((_, admission)) if !admission.run.is_empty() => {
                Some(Arc::clone(&admission.run))
            }
            _ => None,
        };
        let own = run(&self.all[at]);
        let is_twin = own.is_some() && self.all[..at].iter().any(|node| run(node) == own);
        if is_twin {
            return Err(refused(operation, TWINS));
        }
        Ok(())
    }

    /// A token that is larger than all that this store has seen.
    pub(crate) fn propose(&self) -> i64 {
        let ahead = self.ahead.load(Ordering::Relaxed);
        ahead.saturating_add(boot_micros()).saturating_add(1)
    }

    /// A clock or a token of a node. The reply has taken some time, so that the clock is ahead by more.
    pub(crate) fn seen(&self, clock: &Reply) {
        if let Some(clock) = clock.as_int() {
            let ahead = clock.saturating_sub(boot_micros());
            self.ahead.fetch_max(ahead, Ordering::Relaxed);
        }
    }

    /// Asks all nodes that reply within `patience`. Returns their answers, and how many nodes have none. `ended` says
    /// which replies may mean that a hold was ended.
    ///
    /// # Errors
    /// - Why no majority has answered.
    pub(crate) async fn answers<T: Send + 'static>(
        &self,
        operation: &'static str,
        patience: Duration,
        requests: impl Iterator<Item = impl Future<Output = Result<T>> + Send + 'static>,
        ended: impl Fn(&Result<T>) -> bool + Send,
    ) -> Result<(Vec<T>, usize)> {
        let (nodes, mut replies) = (self.all.len(), Vec::new());
        let take = |reply| {
            replies.push(reply);
            false
        };
        self.gather(requests, patience, take).await;
        replies.resize_with(nodes, || Err(silent(operation)));
        let broken = replies.iter().any(ended);
        let (mut answers, mut errors) = (Vec::new(), Vec::new());
        for reply in replies {
            match reply {
                Ok(answer) => answers.push(answer),
                Err(error) => errors.push(error),
            }
        }
        if answers.len() >= majority(nodes) {
            return Ok((answers, errors.len()));
        }
        Err(of_break(failure(operation, nodes, errors), broken))
    }

    /// Writes requests to nodes at once, and takes their replies until there are enough or the patience ends. Requests
    /// without a reply go on by themselves.
    pub(crate) async fn gather<F>(
        &self,
        requests: impl Iterator<Item = F>,
        patience: Duration,
        mut enough: impl FnMut(F::Output) -> bool,
    ) where
        F: Future<Output: Send> + Send + 'static,
    {
        let mut open: FuturesUnordered<F> = requests.collect();
        let mut end = pin!(sleep(patience));
        loop {
            tokio::select! {
                biased;
                reply = open.next() => {
                    if reply.is_none_or(&mut enough) {
                        break;
                    }
                }
                () = &mut end => break,
            }
        }
        if !open.is_empty() {
            let rest = async move { while open.next().await.is_some() {} };
            // Detached: each ends with its connection at the latest.
            drop(self.runtime.spawn(rest));
        }
    }
}
