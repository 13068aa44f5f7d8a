//! Which server has a lock: the only one, or in a cluster the master of its slot.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lockkit_core::{BackendError, LockName, Outcome};
use redis::Cmd;
use tokio::time::{Instant, timeout};

use crate::cluster::Cluster;
use crate::connection::Link;
use crate::error::{BACKEND, Redirect, Result, fault};
use crate::keys;
use crate::reply::Reply;
use crate::route::{Acked, Route};
use crate::scripts::Step;

/// How often a step follows a node that says that the lock is elsewhere.
const MOST_REDIRECTS: usize = 5;

#[derive(Clone, Debug)]
pub(crate) enum Masters {
    One(Arc<Link>),
    Slots(Arc<Cluster>),
}

/// Locks on one server, by their places in a list. Those in one group share a slot.
struct Share {
    route: Result<Route>,
    groups: Vec<Vec<usize>>,
}

impl Masters {
    /// The connections that there are.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        match self {
            Self::One(link) => vec![Arc::clone(link)],
            Self::Slots(cluster) => cluster.links(),
        }
    }

    /// All servers. Waits until there is a connection, or in a cluster the map.
    pub(crate) async fn all(&self, operation: &'static str) -> Result<Vec<Route>> {
        match self {
            Self::One(link) => {
                link.connection(operation).await?;
                Ok(vec![Route::to(Arc::clone(link))])
            }
            Self::Slots(cluster) => cluster.masters(operation).await,
        }
    }

    /// Where a lock is.
    pub(crate) async fn of(&self, operation: &'static str, name: &LockName) -> Result<Route> {
        match self {
            Self::One(link) => Ok(Route::to(Arc::clone(link))),
            Self::Slots(cluster) => {
                cluster
                    .master_of(operation, slot_of(operation, name)?)
                    .await
            }
        }
    }

    /// Does something where a lock is, and again where a node of a cluster says that it has moved.
    pub(crate) async fn on<T, F>(
        &self,
        operation: &'static str,
        name: &LockName,
        step: impl Fn(Route) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut route = self.of(operation, name).await?;
        for _ in 0..MOST_REDIRECTS {
            let result = step(route.clone()).await;
            match (self, result.as_ref().err().and_then(Redirect::of)) {
                (Self::Slots(cluster), Some(redirect)) => route = cluster.follow(&redirect, &route),
                _ => return result,
            }
        }
        step(route).await
    }

    /// Runs a step on many locks, on all servers at once: up to `size` locks of one slot by one command. Returns the
    /// reply to each command, and the places in `names` of the locks that it is about. A server of a cluster that does
    /// not reply within `patience` delays no other.
    pub(crate) async fn on_all(
        &self,
        step: &Step,
        names: &[&LockName],
        size: usize,
        patience: Duration,
        command: impl Fn(&Link, &[usize]) -> Cmd + Send + Sync,
    ) -> Vec<(Vec<usize>, Result<(Reply, Acked)>)> {
        let patience = match self {
            // The client has a limit of its own.
            Self::One(_) => Duration::MAX,
            Self::Slots(_) => patience,
        };
        let late = |link: Option<&Link>| {
            let address = link.map(|link| link.config.address.to_string());
            BackendError::timeout(BACKEND, step.name, patience, address.as_deref())
        };
        let began = Instant::now();
        let on_server = async |Share { route, groups }: Share| {
            let groups: Vec<_> = groups.iter().flat_map(|group| group.chunks(size)).collect();
            let asked = async {
                let route = route?;
                let commands = groups.iter().map(|group| command(&route.link, group));
                let asked = timeout(patience, route.run_all(step, commands)).await;
                asked.map_err(|_| late(Some(&route.link)))
            };
            let replies = match asked.await {
                Ok((replies, acked)) => {
                    let replies = replies.into_iter();
                    replies.map(|reply| Ok((reply?, acked.clone()))).collect()
                }
                Err(error) => vec![Err(error); groups.len()],
            };
            let followed = groups.into_iter().zip(replies);
            let followed = followed.map(async |(group, mut reply)| {
                let moved = |error: &BackendError| Redirect::of(error).is_some();
                if reply.as_ref().is_err_and(moved) {
                    let again = async |route: Route| {
                        let command = command(&route.link, group);
                        route.run_acked(step, command).await
                    };
                    let left = patience.saturating_sub(began.elapsed());
                    let again = timeout(left, self.on(step.name, names[group[0]], again));
                    reply = again.await.unwrap_or_else(|_| Err(late(None)));
                }
                (group.to_vec(), reply)
            });
            join_all(followed).await
        };
        let shares = self.shares(step.name, names).await.into_iter();
        join_all(shares.map(on_server))
            .await
            .into_iter()
            .flatten()
            .collect()
    }

    /// Which of these locks are on which server.
    async fn shares(&self, operation: &'static str, names: &[&LockName]) -> Vec<Share> {
        let cluster = match self {
            Self::One(link) => {
                let route = Ok(Route::to(Arc::clone(link)));
                let groups = vec![(0..names.len()).collect()];
                return vec![Share { route, groups }];
            }
            Self::Slots(cluster) => cluster,
        };
        let (mut slots, mut shares) = (BTreeMap::<u16, Vec<usize>>::new(), Vec::<Share>::new());
        for (at, name) in names.iter().enumerate() {
            match slot_of(operation, name) {
                Ok(slot) => slots.entry(slot).or_default().push(at),
                Err(error) => shares.push(Share {
                    route: Err(error),
                    groups: vec![vec![at]],
                }),
            }
        }
        for (slot, group) in slots {
            let route = cluster.master_of(operation, slot).await;
            let same = |share: &&mut Share| match (&share.route, &route) {
                (Ok(one), Ok(other)) => Arc::ptr_eq(&one.link, &other.link),
                _ => false,
            };
            match shares.iter_mut().find(same) {
                Some(share) => share.groups.push(group),
                None => shares.push(Share {
                    route,
                    groups: vec![group],
                }),
            }
        }
        shares
    }
}

fn slot_of(operation: &'static str, name: &LockName) -> Result<u16> {
    keys::slot_of(name).ok_or_else(|| {
        let why = "because of the braces in its name its keys belong to several slots of the cluster: \
                   write one `{tag}` with a text inside, or no brace";
        fault(operation, Outcome::Rejected, why)
    })
}
