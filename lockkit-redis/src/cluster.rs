//! A Redis Cluster: which master serves which slot, and a connection to each master that is asked.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use lockkit_core::Outcome;
use lockkit_core::store::{Backoff, lock};
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::config::{Address, RedisStoreBuilder};
use crate::connection::{Link, Settled, State, settled};
use crate::error::{Redirect, Result, fault, node, of_connecting};
use crate::handshake::{self, Failure};
use crate::reply::Reply;
use crate::route::Route;
use crate::slot::COUNT;
use crate::subscriptions::Waiters;
use crate::supervisor::{LONGEST_PAUSE, SHORTEST_PAUSE};
use crate::survey::{no_answer, survey};

/// How many nodes are asked for the map at once.
const ASKED: usize = 3;

#[derive(Debug)]
pub(crate) struct Cluster {
    config: RedisStoreBuilder,
    waiters: Arc<Waiters>,
    runtime: Handle,
    map: watch::Sender<Settled<Map>>,
    /// Notified when the map may be wrong.
    stale: Arc<Notify>,
    nodes: Mutex<HashMap<Address, Node>>,
}

/// A node that was asked for a lock, and the task that keeps the connection.
#[derive(Debug)]
struct Node {
    link: Arc<Link>,
    _supervisor: JoinSet<()>,
}

/// Which master serves which slots, as one node sees it.
#[derive(Debug)]
struct Map {
    /// Whether that node is part of the majority.
    ok: bool,
    /// The larger it is, the later is what the node knows: first the epoch of the cluster, which grows with each change of a
    /// master, then that of the node, which is the largest at the master that has come last.
    epoch: (u64, u64),
    /// The first and the last slot of each range, in order.
    ranges: Vec<(u16, u16, Address)>,
}

impl Map {
    fn master_of(&self, slot: u16) -> Option<&Address> {
        let next = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, master) = self.ranges.get(next.checked_sub(1)?)?;
        (slot <= *last).then_some(master)
    }

    fn lowest_slot_of(&self, master: &Address) -> Option<u16> {
        let range = self.ranges.iter().find(|(.., other)| other == master);
        range.map(|(first, ..)| *first)
    }

    fn masters(&self) -> HashSet<&Address> {
        self.ranges.iter().map(|(.., master)| master).collect()
    }
}

impl Cluster {
    pub(crate) fn new(config: RedisStoreBuilder, waiters: Arc<Waiters>, runtime: Handle) -> Self {
        Self {
            config,
            waiters,
            runtime,
            map: watch::Sender::new(Settled::Pending),
            stale: Arc::default(),
            nodes: Mutex::default(),
        }
    }

    /// Returns something of the map. Waits while it is read for the first time; fails if it could never be read, or if
    /// it has none: this says what is lacking.
    async fn in_map<T>(
        &self,
        operation: &'static str,
        lacking: &str,
        part: impl FnOnce(&Map) -> Option<T> + Send,
    ) -> Result<T> {
        let part = settled(&self.map.subscribe(), operation, part).await?;
        part.ok_or_else(|| {
            self.stale.notify_one();
            let why = format!("{lacking} ({})", self.config.address);
            fault(operation, Outcome::Unavailable, why)
        })
    }

    /// Where the locks of a slot are.
    pub(crate) async fn master_of(&self, operation: &'static str, slot: u16) -> Result<Route> {
        let found = |map: &Map| {
            let master = map.master_of(slot)?;
            Some((master.clone(), map.lowest_slot_of(master)))
        };
        let lacking = "no master serves its slot";
        let (master, lowest) = self.in_map(operation, lacking, found).await?;
        Ok(Route::to(self.link_to(master, lowest)))
    }

    pub(crate) async fn masters(&self, operation: &'static str) -> Result<Vec<Route>> {
        let all = |map: &Map| {
            let with_slot = |master: &Address| (master.clone(), map.lowest_slot_of(master));
            let all: Vec<_> = map.masters().into_iter().map(with_slot).collect();
            // While a cluster is made.
            (!all.is_empty()).then_some(all)
        };
        let lacking = "no master has a slot yet";
        let all = self.in_map(operation, lacking, all).await?;
        let route = |(master, lowest)| Route::to(self.link_to(master, lowest));
        Ok(all.into_iter().map(route).collect())
    }

    /// Where a node has said that a lock is.
    pub(crate) fn follow(&self, redirect: &Redirect<'_>, said: &Route) -> Route {
        let address = redirect.address(&said.link.config.address);
        // It may have no slot yet that is known here.
        let lowest = match &*self.map.borrow() {
            Settled::Ready(map) => map.lowest_slot_of(&address),
            Settled::Pending | Settled::Failed(..) => None,
        };
        let link = self.link_to(address, lowest);
        match redirect.is_ask {
            true => Route::asking(link),
            false => Route::to(link),
        }
    }

    /// The nodes that were asked for a lock.
    pub(crate) fn links(&self) -> Vec<Arc<Link>> {
        let nodes = lock(&self.nodes);
        nodes.values().map(|node| Arc::clone(&node.link)).collect()
    }

    /// The connection to a node, which is made at its first use.
    fn link_to(&self, address: Address, lowest_slot: Option<u16>) -> Arc<Link> {
        let mut nodes = lock(&self.nodes);
        let node = nodes.entry(address).or_insert_with_key(|address| {
            let (link, _supervisor) = Link::start(
                self.config_of(address),
                lowest_slot,
                Arc::clone(&self.waiters),
                Arc::clone(&self.stale),
                &self.runtime,
            );
            Node { link, _supervisor }
        });
        Arc::clone(&node.link)
    }

    fn config_of(&self, address: &Address) -> RedisStoreBuilder {
        let mut config = self.config.clone();
        config.address = address.clone();
        config.clustered = true;
        config
    }

    /// Keeps the map up to date, until the store is dropped.
    pub(crate) async fn supervise(&self) {
        let mut pauses = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
        loop {
            match self.read_map().await {
                Ok(map) => {
                    self.adopt(map);
                    pauses.reset();
                    self.stale.notified().await;
                }
                Err((outcome, why)) => {
                    self.map.send_if_modified(|state| {
                        // A map that may be old is better than none.
                        let unknown = !matches!(state, Settled::Ready(_));
                        if unknown {
                            *state = Settled::Failed(outcome, why.into());
                        }
                        unknown
                    });
                }
            }
            sleep(pauses.pause()).await;
        }
    }

    /// Leaves the nodes that are masters no more.
    fn adopt(&self, map: Map) {
        let mut nodes = lock(&self.nodes);
        let is_gone = |address: &Address, _: &mut Node| map.lowest_slot_of(address).is_none();
        let gone: Vec<_> = nodes.extract_if(is_gone).collect();
        for (address, node) in &*nodes {
            *lock(&node.link.lowest_slot) = map.lowest_slot_of(address);
        }
        drop(nodes);
        drop(gone);
        let before = self.map.send_replace(Settled::Ready(map));
        let now = self.map.borrow();
        let (Settled::Ready(before), Settled::Ready(now)) = (&before, &*now) else {
            return;
        };
        if before.ranges != now.ranges {
            // The queues have other masters now.
            self.waiters.wake_all();
        }
    }

    /// Asks nodes that are known, a few at a time: first those with a connection, last those that the user has named.
    async fn read_map(&self) -> Result<Map, Failure> {
        let limit = self.config.connect_timeout;
        let mut connected = HashMap::new();
        for link in self.links() {
            if let State::Ready((connection, _)) = &*link.state.borrow() {
                connected.insert(link.config.address.clone(), connection.clone());
            }
        }
        let mut candidates: Vec<Address> = connected.keys().cloned().collect();
        if let Settled::Ready(map) = &*self.map.borrow() {
            candidates.extend(map.masters().into_iter().cloned());
        }
        if let Address::Cluster(hosts) = &self.config.address {
            candidates.extend_from_slice(hosts);
        }
        let mut seen = HashSet::new();
        candidates.retain(|address| seen.insert(address.clone()));
        let (mut best, mut failures) = (None, Vec::new());
        for some in candidates.chunks(ASKED) {
            let mut asked = JoinSet::new();
            for address in some {
                let connection = connected.remove(address);
                asked.spawn(ask(self.config_of(address), connection));
            }
            let (maps, failed) = survey(asked, ASKED, |map: &Map| map.ok, limit).await;
            failures.extend(failed);
            // One that is cut off knows only what was.
            let known = maps.into_iter().chain(best);
            best = known.max_by_key(|map| (map.ok, map.epoch));
            if best.as_ref().is_some_and(|map| map.ok) {
                break;
            }
        }
        best.ok_or_else(|| no_answer("no node names the masters", failures))
    }
}

/// Asks one node for the map, on its connection or on one that is made for it.
async fn ask(
    config: RedisStoreBuilder,
    connection: Option<MultiplexedConnection>,
) -> Result<Map, Failure> {
    let (limit, address) = (config.connect_timeout, config.address.clone());
    let opened;
    let mut connection = match connection {
        Some(connection) => connection,
        None => {
            opened = handshake::open(&config, None).await?;
            opened.connection.clone()
        }
    };
    let mut question = redis::pipe();
    question
        .cmd("CLUSTER")
        .arg("INFO")
        .cmd("CLUSTER")
        .arg("SLOTS");
    let answer = timeout(limit, question.query_async(&mut connection)).await;
    let answer =
        answer.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()));
    let (info, slots): (Value, Value) = answer.map_err(|error| refused(&error, &address))?;
    read(&Reply::of(info), &Reply::of(slots), &address).ok_or_else(|| {
        let why = format!("the reply to `CLUSTER SLOTS` cannot be read ({address})");
        (Outcome::Rejected, why)
    })
}

fn refused(error: &RedisError, address: &Address) -> Failure {
    let (outcome, text) = of_connecting(error);
    let hint = match error.code() {
        Some("ERR") => ": is it a node of a cluster? If not, write `redis://`",
        Some("NOPERM") => ": allow the user `CLUSTER INFO` and `CLUSTER SLOTS`",
        _ => "",
    };
    (outcome, format!("{text} ({address}){hint}"))
}

fn read(info: &Reply, slots: &Reply, asked: &Address) -> Option<Map> {
    let info = info.as_str()?;
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.split_once(':'));
        lines.find_map(|(key, value)| (key == name).then_some(value))
    };
    let number = |name: &str| field(name)?.parse().ok();
    let range = |range: &Reply| {
        let [first, last, master, ..] = range.as_list() else {
            return None;
        };
        let [host, port, ..] = master.as_list() else {
            return None;
        };
        let number = |reply: &Reply| reply.as_u64().and_then(|it| u16::try_from(it).ok());
        let slot = |reply| number(reply).filter(|slot| *slot < COUNT);
        let host = host.as_str().unwrap_or_default();
        let address = node(host, number(port)?, asked);
        Some((slot(first)?, slot(last)?, address))
    };
    let ranges: Option<Vec<_>> = slots.as_list().iter().map(range).collect();
    let mut ranges = ranges?;
    ranges.sort_by_key(|(first, ..)| *first);
    Some(Map {
        ok: field("cluster_state") == Some("ok"),
        epoch: (
            number("cluster_current_epoch")?,
            number("cluster_my_epoch")?,
        ),
        ranges,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_has_only_slots_that_there_are() {
        let info = "cluster_state:ok\r\ncluster_current_epoch:2\r\ncluster_my_epoch:1\r\n";
        let info = Reply::Bytes(info.into());
        let node = Reply::List(vec![Reply::Bytes("10.0.0.7".into()), Reply::Int(6379)]);
        let asked = Address::tcp(("h", 6379));
        for (first, last, is_read) in [(0, 16_383, true), (0, 16_384, false), (16_384, 1, false)] {
            let range = vec![Reply::Int(first), Reply::Int(last), node.clone()];
            let slots = Reply::List(vec![Reply::List(range)]);
            let map = read(&info, &slots, &asked);
            assert_eq!(map.is_some(), is_read, "{first} to {last}");
        }
    }
}
