//! The store: each call of the contract is one step of the server.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::contract::{
    Attempt, DistributedLock, Grant, LockState, Mode, Release, Renewal, Ticket, Watch,
};
use lockkit_core::store::tag;
use lockkit_core::{
    BackendError, Capabilities, HolderId, LockName, Outcome, Queueing, Waiting, queue_window,
};
use redis::Cmd;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::config::{Address, LONGEST_TIMEOUT, RedisStoreBuilder};
use crate::connection::Link;
use crate::error::{BACKEND, Result, fault};
use crate::keys;
use crate::masters::Masters;
use crate::reply::{Reply, unreadable};
use crate::route::Route;
use crate::scripts::{ACQUIRE, ADOPT, COMMIT, ENTER, NOTE, RELEASE, SHARE, Step, UNSHARE};
use crate::subscriptions::Waiters;
use crate::work::{self, Command, Reads, Writes};

/// Keeps locks in a Redis or Valkey server.
///
/// A clone is the same store, on the same connection.
///
/// # Examples
/// ```no_run
/// use lockkit_core::LockClient;
/// use lockkit_redis::RedisStore;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::builder().tcp("127.0.0.1", 6379).connect().await?;
/// let client = LockClient::new(store)?;
/// let guard = client.lock("orders/42")?.acquire().await?;
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    pub(crate) config: Arc<RedisStoreBuilder>,
    pub(crate) masters: Masters,
    waiters: Arc<Waiters>,
    /// The task that keeps the connection, or in a cluster finds the masters. The last clone aborts it, which closes
    /// the connections.
    _supervisor: Arc<JoinSet<()>>,
}

/// What a [`RedisStore`] keeps in this process. All zero when it is not used, except for channels, which
/// stay for at most ten seconds after their last waiter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Tickets that hold, wait, or have an attempt without a reply.
    pub tickets: usize,
    /// Locks whose channel is subscribed.
    pub channels: usize,
}

impl RedisStore {
    /// The options of a store.
    pub fn builder() -> RedisStoreBuilder {
        RedisStoreBuilder::new()
    }

    /// Counts what is kept.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let links = self.masters.links();
        let channels = links.iter().map(|link| link.subscriptions.len());
        Counts {
            tickets: self.waiters.len(),
            channels: channels.sum(),
        }
    }

    async fn acquire(&self, route: Route, ticket: &Ticket, number: u64) -> Result<Attempt> {
        let link = &route.link;
        let rules = self.capabilities();
        let exclusive = ticket.mode == Mode::Exclusive;
        let enqueue = match (ticket.enqueue, rules.queueing) {
            (false, _) => "0",
            // It would starve if other clients queue.
            (true, Queueing::Barging) if exclusive => "2",
            (true, _) => "1",
        };
        let channel = match rules.waiting {
            Waiting::Push => &link.subscriptions.channel,
            _ => "",
        };
        let reads = Reads::of(ticket).filter(|_| exclusive);
        let step = match (exclusive, reads) {
            (true, None) => &*ACQUIRE,
            (true, Some(_)) => &*ENTER,
            (false, _) => &*SHARE,
        };
        let admission = link.admission(step.name).await?;
        let primary = match admission.primary() {
            Ok(primary) => primary,
            Err(left) => return Ok(Attempt::held_for(Some(left))),
        };
        let holder = ticket.holder.to_string();
        let mut command = on_lock(link, step, &ticket.name, &holder, primary, &[]);
        command
            .arg(ticket.ttl.as_millis())
            .arg(enqueue)
            .arg(queue_window(&rules, ticket.ttl).as_millis())
            .arg(number)
            .arg(channel)
            .arg(who(ticket));
        if let Some(reads) = reads {
            Command::add_all(&reads.request, &mut command);
        }
        let attempt = grant(&route, step, ticket, command).await?;
        if matches!(attempt, Attempt::Held { .. }) && self.waiters.is_watched(&ticket.name) {
            // It may wait here now, and before it waited elsewhere.
            link.subscriptions.subscribe(&ticket.name);
        }
        Ok(attempt)
    }

    /// Ends the hold of a ticket, and refuses its attempts from now on for so long. Does its work.
    pub(crate) async fn end(
        &self,
        route: Route,
        ticket: &Ticket,
        refuse: Duration,
    ) -> Result<Release> {
        let (link, exclusive) = (&route.link, ticket.mode == Mode::Exclusive);
        let writes = Writes::of(ticket).filter(|_| exclusive);
        let step = match (exclusive, writes) {
            (true, None) => &*RELEASE,
            (true, Some(_)) => &*COMMIT,
            (false, _) => &*UNSHARE,
        };
        let admission = link.admission(step.name).await?;
        let (holder, primary) = (ticket.holder.to_string(), admission.for_release());
        let mut command = on_lock(link, step, &ticket.name, &holder, primary, &[]);
        command
            .arg(keys::channel(&ticket.name))
            .arg(refuse.as_millis())
            .arg(u8::from(link.config.clustered));
        if !exclusive {
            command.arg(keys::rw_channel(&ticket.name));
        }
        if let Some(writes) = writes {
            writes.request.add(&mut command);
        }
        let (reply, acked) = route.run_acked(step, command).await?;
        match (writes, reply.as_list()) {
            (Some(writes), [Reply::Int(1), replies]) => {
                let written = work::written(replies);
                if written.is_ok() {
                    acked?;
                }
                writes.keep(written);
                Ok(Release::Released)
            }
            (Some(_), [Reply::Int(0)]) => Ok(Release::NotHeld),
            (None, []) if reply.as_int() == Some(1) => Ok(Release::Released),
            (None, []) if reply.as_int() == Some(0) => Ok(Release::NotHeld),
            _ => Err(unreadable(step.name)),
        }
    }

    async fn take_over(&self, route: Route, from: &str, ticket: &Ticket) -> Result<Attempt> {
        let (link, step) = (&route.link, &*ADOPT);
        let [.., former] = keys::of_step(&ticket.name, from);
        let holder = ticket.holder.to_string();
        let admission = link.admission(step.name).await?;
        let primary = admission.primary().map_err(|left| {
            let why = format!("the server has become the primary and grants nothing for {left:?}");
            fault(step.name, Outcome::Unavailable, why)
        })?;
        let mut command = on_lock(link, step, &ticket.name, &holder, primary, &[&former]);
        command
            .arg(ticket.ttl.as_millis())
            .arg(from)
            .arg(who(ticket));
        grant(&route, step, ticket, command).await
    }
}

/// The command of a step that follows `queue.lua`, with the arguments that all of these have.
/// `primary` is empty for steps that grant nothing; `more` keys follow those of the lock.
pub(crate) fn on_lock(
    link: &Link,
    step: &Step,
    name: &LockName,
    ticket: &str,
    primary: &str,
    more: &[&str],
) -> Cmd {
    let of_lock = keys::of_step(name, ticket);
    let keys = of_lock.iter().map(String::as_str);
    let mut command = step.on(&keys.chain(more.iter().copied()).collect::<Vec<_>>());
    command.arg(link.token_ttl()).arg(ticket).arg(primary);
    command
}

/// Runs a step that may make a hold.
async fn grant(route: &Route, step: &Step, ticket: &Ticket, command: Cmd) -> Result<Attempt> {
    let (reply, acked) = route.run_acked(step, command).await?;
    let attempt = attempt(step, ticket, &reply)?;
    if matches!(attempt, Attempt::Granted(_)) {
        acked?;
    }
    Ok(attempt)
}

impl RedisStoreBuilder {
    /// Connects.
    ///
    /// # Errors
    /// - [`BackendError`] if the server cannot be reached or refuses this user.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing stays behind.
    pub async fn connect(self) -> Result<RedisStore> {
        let store = self.open()?;
        store.masters.all("connect").await?;
        Ok(store)
    }

    /// Begins to connect.
    pub(crate) fn open(mut self) -> Result<RedisStore> {
        for timeout in [&mut self.connect_timeout, &mut self.response_timeout] {
            *timeout = LONGEST_TIMEOUT.min(*timeout);
        }
        let runtime = Handle::try_current()
            .map_err(|error| fault("connect", Outcome::Rejected, error.to_string()))?;
        let (config, waiters) = (Arc::new(self.clone()), Arc::<Waiters>::default());
        let own = Arc::clone(&waiters);
        let (masters, supervisor) = if let Address::Cluster(_) = self.address {
            let cluster = Arc::new(Cluster::new(self, own, runtime.clone()));
            let (supervised, mut supervisor) = (Arc::clone(&cluster), JoinSet::new());
            supervisor.spawn_on(async move { supervised.supervise().await }, &runtime);
            (Masters::Slots(cluster), supervisor)
        } else {
            let (link, supervisor) = Link::start(self, None, own, Arc::default(), &runtime);
            (Masters::One(link), supervisor)
        };
        Ok(RedisStore {
            config,
            masters,
            waiters,
            _supervisor: Arc::new(supervisor),
        })
    }
}

/// The mode and the label of a ticket, as the scripts read them.
pub(crate) fn who(ticket: &Ticket) -> String {
    let mode = tag::write_mode(ticket.mode);
    match &ticket.label {
        Some(label) => format!("{mode} {label}"),
        None => mode,
    }
}

/// What a step that may make a hold has returned.
fn attempt(step: &Step, ticket: &Ticket, reply: &Reply) -> Result<Attempt> {
    match reply.as_list() {
        [Reply::Int(1), token, read @ ..] => {
            let token = token.as_token().ok_or_else(|| unreadable(step.name))?;
            if let (Some(reads), [replies]) = (Reads::of(ticket), read) {
                reads.keep((token, work::read(replies)));
            }
            Ok(Attempt::Granted(Grant::new(token, ticket.ttl)))
        }
        // Also for a ticket that is not first: all before it may have died. While holders renew, the
        // lease lasts longer than any waiter pauses.
        [Reply::Int(0), left] => Ok(Attempt::held_for(left.as_millis())),
        _ => Err(refusal(step, &ticket.name, reply)),
    }
}

/// Why the lock was neither granted nor found held.
pub(crate) fn refusal(step: &Step, name: &LockName, reply: &Reply) -> BackendError {
    match reply.as_list() {
        [Reply::Int(-1)] => BackendError::released(BACKEND, step.name),
        [Reply::Int(-2), kind] => wrong_type(step, name, kind.as_str().unwrap_or("unknown")),
        _ => unreadable(step.name),
    }
}

pub(crate) fn wrong_type(step: &Step, name: &LockName, kind: &str) -> BackendError {
    let key = keys::lock(name);
    let why = format!("the key `{key}` is a {kind} and not a lock: it is left alone");
    fault(step.name, Outcome::Rejected, why)
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.capabilities();
        f.debug_struct("RedisStore")
            .field("queueing", &rules.queueing)
            .field("waiting", &rules.waiting)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl DistributedLock for RedisStore {
    fn backend(&self) -> &'static str {
        BACKEND
    }

    fn address(&self) -> Option<String> {
        Some(self.config.address.to_string())
    }

    fn capabilities(&self) -> Capabilities {
        self.config.capabilities()
    }

    async fn attempt(&self, ticket: &Ticket) -> Result<Attempt> {
        let waiters = &self.waiters;
        // Before the request is written, so that a message that comes at once is kept.
        let number = waiters.attempted(ticket);
        if ticket.work.is_some() {
            waiters.with(ticket.holder, |entry| entry.data.clone_from(&ticket.work));
        }
        let acquire = |route| self.acquire(route, ticket, number);
        let result = self.masters.on("attempt", &ticket.name, acquire).await;
        waiters.answered(ticket, number, &result);
        if matches!(result, Ok(Attempt::Granted(_))) {
            // What a late message has read is older than what is written under the hold.
            drop(waiters.with(ticket.holder, |entry| entry.data.take()));
        }
        result
    }

    async fn watch(&self, ticket: &Ticket) -> Result<Box<dyn Watch>> {
        if self.capabilities().waiting == Waiting::Poll {
            let why = "this store was opened with `wake=poll`";
            return Err(fault("watch", Outcome::Rejected, why));
        }
        let route = self.masters.of("watch", &ticket.name).await?;
        Ok(route.link.subscriptions.watch(ticket))
    }

    async fn renew(&self, tickets: &[Ticket]) -> Vec<Result<Renewal>> {
        self.renew_all(tickets).await
    }

    async fn release(&self, ticket: &Ticket) -> Result<Release> {
        let known = self.waiters.forget(ticket.holder);
        // An unknown ticket was released before, and that release had no reply.
        let late = known.is_none_or(|known| known.unanswered);
        // An attempt that may still arrive is refused for as long as its hold would last.
        let refuse = if late { ticket.ttl } else { Duration::ZERO };
        let end = |route| self.end(route, ticket, refuse);
        self.masters.on("release", &ticket.name, end).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Option<LockState>> {
        self.inspect_name(name).await
    }

    async fn break_lock(&self, name: &LockName) -> Result<Option<LockState>> {
        self.break_name(name).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockState>> {
        self.list_prefix(prefix).await
    }

    async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool> {
        let (step, holder) = (&*NOTE, &ticket.holder.to_string());
        let note = async |route: Route| {
            let mut command = on_lock(&route.link, step, &ticket.name, holder, "", &[]);
            command.arg(text);
            route.run(step, command).await
        };
        let held = self.masters.on(step.name, &ticket.name, note).await?;
        let held = held.as_int().map(|held| held == 1);
        held.ok_or_else(|| unreadable(step.name))
    }

    async fn adopt(&self, from: HolderId, ticket: &Ticket) -> Result<Attempt> {
        let former = &from.to_string();
        let adopt = |route| self.take_over(route, former, ticket);
        self.masters.on("adopt", &ticket.name, adopt).await
    }

    fn forget(&self, holder: HolderId) {
        self.waiters.forget(holder);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
