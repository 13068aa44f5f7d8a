//! Redlock with a fence: a lock in several independent servers, which a majority of them grants.

mod attempt;
mod nodes;
mod quorum;
mod renewal;
mod sent;
mod states;
mod tickets;
mod url;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{
    Attempt, DistributedLock, Grant, LockState, Release, Renewal, Ticket, Watch,
};
use lockkit_core::{Capabilities, Failover, HolderId, LockName, Outcome, PollRange, Waiting};
use tokio::runtime::Handle;

use crate::backend::RedisStore;
use crate::config::{Address, Quarantine, RedisStoreBuilder};
use crate::error::Result;
use nodes::{Node, Nodes};
use quorum::{BACKEND, Count, Verdict, refused};
use tickets::Asked;

const NO_QUARANTINE: &str = "there is no Redlock without a quarantine: a server that was restarted would grant what it \
                             does not know to be held";

/// Keeps locks in several Redis or Valkey servers that know nothing of each other. A majority of them grants a lock.
///
/// It has exclusive locks only, and waiters poll. A clone is the same store.
///
/// # Source
/// Redlock of Redis, with a fencing token that grows. Each node accepts for a ticket only a token that is larger than
/// all that it has accepted before. A ticket holds when a majority has accepted one token for it.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_redis::{RedisStore, RedlockStore};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedlockStore::builder([("h1", 6379), ("h2", 6379), ("h3", 6379)])
///     .options(RedisStore::builder().user("app").password("s3cret"))
///     .connect()
///     .await?;
/// let client = LockClient::new(store)?;
/// client.lock("orders/42")?.acquire().await?.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedlockStore(Arc<Nodes>);

/// The options of a [`RedlockStore`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `connect`"]
pub struct RedlockStoreBuilder {
    hosts: Vec<Address>,
    node: RedisStoreBuilder,
}

impl RedlockStore {
    /// The options of a store in these servers, each with its port, usually 6379. All clients give the same list.
    pub fn builder(
        hosts: impl IntoIterator<Item = (impl Into<String>, u16)>,
    ) -> RedlockStoreBuilder {
        RedlockStoreBuilder {
            hosts: hosts.into_iter().map(Address::tcp).collect(),
            node: RedisStoreBuilder::new().poll(pauses()),
        }
    }

    /// How many tickets hold, wait, or have an attempt without a reply.
    #[must_use]
    pub fn tickets(&self) -> usize {
        self.0.tickets.len()
    }
}

impl RedlockStoreBuilder {
    /// The options of each server: user, password, database, TLS, `poll`, `token_ttl`, `quarantine`, `ttl` and the
    /// timeouts. Those of its address, of wake-ups and of replicas do not count.
    pub fn options(mut self, node: RedisStoreBuilder) -> Self {
        self.node = match node.waiting {
            Waiting::Poll => node,
            _ => node.poll(pauses()),
        };
        self
    }

    /// The lease that the client will ask for, if it is not 30 s: the default length of the quarantine.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.node = self.node.ttl(ttl);
        self
    }

    /// What the store will be able to do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            failover: Failover::Majority,
            shares: false,
            notes: false,
            adopts: false,
            ..self.of_node(&self.node.address).capabilities()
        }
    }

    /// Connects to a majority of the servers; the others are tried for as long as the store lives.
    ///
    /// # Errors
    /// - [`BackendError`](lockkit_core::BackendError) if there are fewer than three servers or an even number, or one
    ///   is there twice; if there is no quarantine; if other clients have another list; if a server refuses this user,
    ///   or no majority can be reached.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing stays behind.
    pub async fn connect(self) -> Result<RedlockStore> {
        self.check().map_err(|why| refused("connect", why))?;
        let runtime =
            Handle::try_current().map_err(|error| refused("connect", error.to_string()))?;
        let nodes = self.hosts.iter().map(|host| {
            let store = self.of_node(host).open()?;
            Node::of(store).ok_or_else(|| refused("connect", "a node is a single server"))
        });
        let nodes = nodes.collect::<Result<_, _>>()?;
        // Two rounds, and what gives nodes up, within the time of a request of the client.
        let patience = self.node.response_timeout / 8;
        let nodes = Nodes::open(nodes, self.capabilities(), patience, runtime).await?;
        Ok(RedlockStore(Arc::new(nodes)))
    }

    fn check(&self) -> Result<(), String> {
        let count = self.hosts.len();
        if count < 3 || count.is_multiple_of(2) {
            let why = "give three or another odd number: a majority decides";
            return Err(format!("{count} servers: {why}"));
        }
        let twice = |(at, host)| self.hosts[..at].contains(host).then_some(host);
        if let Some(host) = self.hosts.iter().enumerate().find_map(twice) {
            return Err(format!("the server {host} is in the list twice"));
        }
        match self.node.quarantine {
            Quarantine::Off => Err(NO_QUARANTINE.to_owned()),
            _ => Ok(()),
        }
    }

    fn of_node(&self, host: &Address) -> RedisStoreBuilder {
        let mut members: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        members.sort_unstable();
        let mut node = self.node.clone();
        node.address = host.clone();
        node.members = members.join(",").into();
        node.acks = 0;
        if node.quarantine == Quarantine::OfTtl {
            node.quarantine = Quarantine::For(node.ttl);
        }
        node
    }
}

fn pauses() -> PollRange {
    PollRange::new(Duration::from_millis(5), Duration::from_millis(100))
}

impl RedlockStore {
    async fn attempted(&self, ticket: &Ticket, asked: &Asked) -> Result<Attempt> {
        let nodes = &self.0;
        let (mut votes, mut verdict) = nodes.attempt(asked, false).await;
        if verdict == Verdict::Raise {
            (votes, verdict) = nodes.attempt(asked, true).await;
        }
        if let Verdict::Granted(token) = verdict {
            return Ok(Attempt::Granted(Grant::new(token, ticket.ttl)));
        }
        // First, so that no attempt begins any more.
        nodes.withdrawn(ticket);
        let left = nodes.left(asked, &votes);
        let something_left = !left.is_empty();
        if something_left {
            nodes.withdraw(asked, &votes, left).await;
        }
        match verdict {
            Verdict::Failed => Err(votes.error(something_left)),
            _ => Ok(Attempt::held()),
        }
    }

    /// What all nodes tell of a lock.
    async fn merged<F>(
        &self,
        operation: &'static str,
        name: &LockName,
        ask: impl Fn(RedisStore, LockName) -> F + Send + Sync,
        ended: impl Fn(&Result<Option<LockState>>) -> bool + Send,
    ) -> Result<Option<LockState>>
    where
        F: Future<Output = Result<Option<LockState>>> + Send + 'static,
    {
        let nodes = &self.0;
        let asked = nodes.all.iter();
        let asked = asked.map(|node| ask(node.store.clone(), name.clone()));
        let answers = nodes.answers(operation, nodes.patience, asked, ended);
        let (states, silent) = answers.await?;
        let states: Vec<_> = states.into_iter().flatten().collect();
        Ok(states::merge(name, &states, nodes.all.len(), silent))
    }
}

impl fmt::Debug for RedlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockStore")
            .field("nodes", &self.0.all.len())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for RedlockStore {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn address(&self) -> Option<String> {
        let nodes = self.0.all.iter();
        let addresses: Vec<_> = nodes.filter_map(|node| node.store.address()).collect();
        Some(addresses.join(", "))
    }

    fn capabilities(&self) -> Capabilities {
        self.0.rules
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt> {
        let nodes = &self.0;
        let (number, asked) = nodes.attempted(ticket);
        let result = self.attempted(ticket, &asked).await;
        nodes.tickets.answered(ticket, number, &result);
        result
    }

    async fn watch(&self, _: &Ticket) -> Result<Box<dyn Watch>> {
        Err(refused("watch", "waiters of this store poll"))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        self.0.renew(tickets).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release> {
        let nodes = &self.0;
        let asked = nodes.released(ticket);
        let mut count = Count::new("release", nodes.all.len());
        let releases = (0..nodes.all.len()).map(|at| nodes.release(at, &asked));
        let enough = |(_, released)| {
            count.add(released);
            count.decided().is_some()
        };
        nodes.gather(releases, nodes.patience, enough).await;
        let released = count.end()?;
        nodes.tickets.forget(ticket.holder);
        Ok(match released {
            true => Release::Released,
            false => Release::NotHeld,
        })
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>> {
        let ask = async |node: RedisStore, name| node.inspect_name(&name).await;
        self.merged("inspect", name, ask, |_| false).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>> {
        let ask = async |node: RedisStore, name| node.break_name(&name).await;
        let ended = |reply: &Result<Option<_>>| match reply {
            Ok(before) => before.is_some(),
            Err(error) => error.outcome() == Outcome::Indeterminate,
        };
        self.merged("break", name, ask, ended).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        let ask = |node: &Node| {
            let (node, prefix) = (node.store.clone(), prefix.to_owned());
            async move { node.list_prefix(&prefix).await }
        };
        let nodes = &self.0;
        // A node makes a connection of its own for it, and sends several requests.
        let (patience, asked) = (nodes.patience * 3, nodes.all.iter().map(ask));
        let lists = nodes.answers("list", patience, asked, |_| false);
        let (lists, silent) = lists.await?;
        let states = states::by_name(lists.into_iter().flatten());
        let merge =
            |(name, states): (_, Vec<_>)| states::merge(&name, &states, nodes.all.len(), silent);
        Ok(states.into_iter().filter_map(merge).collect())
    }

    fn forget(&self, holder: HolderId) {
        self.0.tickets.forget(holder);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
