//! Requests to nodes of a Redlock that fail, all or one of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance_tests::proxy::{Dropped, Fate, Proxy};
use conformance_tests::servers::{RedisServer, RedlockServers};
use conformance_tests::task::{until, within};
use conformance_tests::{Failure, Outcome};
use lockkit_core::contract::{Attempt, DistributedLock as _, Ticket};
use lockkit_core::store::lock;
use lockkit_core::{ClientId, HolderId, LockName};
use lockkit_redis::RedlockStore;

use crate::redlock::{Hosts, proxies, store};
use crate::world::TTL;

/// The longest lease, and the quarantine.
pub(crate) const LONGEST: Duration = TTL.saturating_mul(2);
/// The time that a busy machine may add.
pub(crate) const BUSY: Duration = Duration::from_secs(1);

/// What a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server does nothing and replies with this.
    Refused(&'static str),
    /// The connection ends, and there is no other one.
    Down,
    /// The connection ends before the request has arrived.
    Cut,
    /// The connection ends before the reply has arrived.
    Lost,
    /// No reply arrives.
    Silent,
}

pub(crate) const OOM: Fault =
    Fault::Refused("-OOM command not allowed when used memory > 'maxmemory'.\r\n");

/// How many of the five nodes fail.
pub(crate) const NODES: [usize; 3] = [1, 2, 3];

impl Fault {
    /// Of a request, which may have come together with another one: a ping.
    pub(crate) fn fate(self, request: &str) -> Fate {
        let commands = request.matches("\r\n*").count() + 1;
        match self {
            Self::Refused(line) => Fate::Answer(line.repeat(commands).into_bytes()),
            Self::Cut | Self::Down => Fate::Cut,
            Self::Lost => Fate::Drop(Dropped::Reset),
            Self::Silent => Fate::Drop(Dropped::Silence),
        }
    }
}

/// A request that is to fail, at the first nodes.
struct Order {
    fault: Fault,
    nodes: usize,
    /// Its number at each node; `None` for all.
    at: Option<usize>,
    /// How many were sent to each node.
    seen: [usize; 5],
    struck: usize,
}

impl Order {
    fn fate(&mut self, node: usize, request: &str) -> Fate {
        self.seen[node] += 1;
        let strikes = self.at.is_none_or(|at| at + 1 == self.seen[node]);
        if node >= self.nodes || !strikes {
            return Fate::Pass;
        }
        self.struck += 1;
        self.fault.fate(request)
    }
}

/// The orders, by what is in the requests.
type Orders = Arc<Mutex<HashMap<String, Order>>>;

/// The servers, and a store whose requests do not fail. All clients must know the servers by the same addresses.
pub(crate) struct World {
    servers: RedlockServers,
    ways: Vec<Proxy>,
    pub(crate) hosts: Hosts,
    orders: Orders,
    pub(crate) sound: RedlockStore,
    /// Larger than all tokens of the first round.
    pub(crate) far: u64,
}

impl World {
    pub(crate) async fn new() -> Outcome<Arc<Self>> {
        let servers = RedlockServers::forgetful().await?;
        let (ways, hosts) = proxies(&servers).await?;
        let orders = Orders::default();
        for (node, way) in ways.iter().enumerate() {
            let orders = Arc::clone(&orders);
            way.judge(move |request| {
                let request = String::from_utf8_lossy(request);
                let mut orders = lock(&orders);
                let order = orders.iter_mut().find(|(part, _)| request.contains(*part));
                order.map_or(Fate::Pass, |(_, order)| order.fate(node, &request))
            });
        }
        let sound = store(hosts.clone(), LONGEST).connect().await?;
        // From now on the nodes know all scripts.
        let first = ticket("first", 1)?;
        let Attempt::Granted(grant) = sound.attempt(&first).await? else {
            return Err(Failure::new("a free lock was refused"));
        };
        sound.renew(std::slice::from_ref(&first)).await.remove(0)?;
        sound.break_lock(&first.name).await?;
        sound.release(&first).await?;
        Ok(Arc::new(Self {
            servers,
            ways,
            hosts,
            orders,
            sound,
            far: grant.token.get() + 3_600_000_000,
        }))
    }

    pub(crate) fn nodes(&self) -> &[RedisServer] {
        self.servers.nodes()
    }

    /// Lets requests with `part` in them fail.
    pub(crate) fn arm(&self, part: &str, fault: Fault, nodes: usize, at: Option<usize>) {
        let order = Order {
            fault,
            nodes,
            at,
            seen: [0; 5],
            struck: 0,
        };
        lock(&self.orders).insert(part.to_owned(), order);
    }

    /// Returns how many have failed.
    pub(crate) fn disarm(&self, part: &str) -> usize {
        let order = lock(&self.orders).remove(part);
        order.map_or(0, |order| order.struck)
    }

    /// Refuses connections to the first nodes, and ends those that there are; or accepts them again.
    pub(crate) fn set_down(&self, nodes: usize, down: bool) {
        for way in &self.ways[..nodes] {
            way.refuse(down);
            if down {
                way.reset();
            }
        }
    }

    /// Nodes keep nothing but tokens, once a lease has ended.
    pub(crate) async fn nothing_is_left(&self) -> Outcome {
        for node in self.nodes() {
            let none = async || Ok(node.ask(&["KEYS", "jobs/*"]).await?.is_empty());
            within(LONGEST + BUSY, until("nothing is left", none)).await??;
        }
        Ok(())
    }
}

pub(crate) fn ticket(name: &str, number: u64) -> Outcome<Ticket> {
    let holder = HolderId::new(ClientId::random(), number);
    Ok(Ticket::new(LockName::new(name)?, holder, TTL))
}
