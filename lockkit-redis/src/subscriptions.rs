//! The channels on which wake-ups come: which are subscribed, and what each message means.
//!
//! A store object has one channel of its own, on which its waiters learn of their grants. It also
//! subscribes the channel of each lock that it waits for: Redisson's releases are published there, and
//! those that find the queue empty. It stays subscribed for a while after the last waiter, so that a lock
//! that is often waited for does not cost a subscription each time. It unsubscribes sooner if messages
//! keep coming while it has no waiter: each of them costs the server and this process some time.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockkit_core::contract::{Grant, Ticket, Watch, Work};
use lockkit_core::store::lock;
use lockkit_core::store::waiters;
use lockkit_core::{FencingToken, HolderId, LockName};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::keys;
use crate::reply::Reply;
use crate::work::{self, Reads};

/// The tickets of a store, with what the sections among them read.
pub(crate) type Waiters = waiters::Waiters<Option<Work>>;

/// How long a lock's channel stays subscribed after its last waiter here.
const LINGER: Duration = Duration::from_secs(10);

/// The largest number of messages on it in that time. A waiter that comes back finds a few of its own.
const MAX_UNHEEDED: u32 = 16;

/// The subscriptions of a connection, and the tickets that they wake.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    /// The channel of this store object, or in a cluster of this connection: messages reach all nodes there.
    pub(crate) channel: String,
    /// Whether a message is enough to hold. Else the ticket tries again, to learn whether replicas have its hold.
    trusts_messages: bool,
    /// Those of the store, on all connections.
    pub(crate) waiters: Arc<Waiters>,
    /// Locked before the waiters, where both are.
    channels: Mutex<Channels>,
    /// Notified when a channel is to be subscribed.
    pub(crate) wanted: Notify,
    /// Notified when a channel is to be unsubscribed because of its messages.
    pub(crate) unheeded: Notify,
    /// Notified when the channels of locks are others than before.
    pub(crate) changed: Notify,
}

#[derive(Debug, Default)]
struct Channels {
    locks: HashMap<String, LockChannel>,
    /// Channels of locks that are not subscribed yet.
    wanted: Vec<String>,
}

/// The channel of a lock.
#[derive(Debug)]
struct LockChannel {
    name: LockName,
    /// When it was first seen without a waiter.
    idle_since: Option<Instant>,
    /// How many messages came since it has no waiter.
    unheeded: u32,
}

impl Subscriptions {
    pub(crate) fn new(channel: String, trusts_messages: bool, waiters: Arc<Waiters>) -> Self {
        Self {
            channel,
            trusts_messages,
            waiters,
            channels: Mutex::default(),
            wanted: Notify::new(),
            unheeded: Notify::new(),
            changed: Notify::new(),
        }
    }

    fn channels(&self) -> MutexGuard<'_, Channels> {
        lock(&self.channels)
    }

    /// How many channels of locks are kept.
    pub(crate) fn len(&self) -> usize {
        self.channels().locks.len()
    }

    /// Opens the wake-ups of a ticket.
    pub(crate) fn watch(&self, ticket: &Ticket) -> Box<dyn Watch> {
        self.subscribe(&ticket.name);
        Box::new(self.waiters.watch(ticket))
    }

    /// Sees to it that the channel of a lock is subscribed here while somebody waits for it.
    pub(crate) fn subscribe(&self, name: &LockName) {
        let mut channels = self.channels();
        let Channels { locks, wanted } = &mut *channels;
        let lock = locks.entry(keys::channel(name));
        let lock = lock.or_insert_with_key(|channel| {
            // Once it is subscribed, the ticket tries again.
            wanted.push(channel.clone());
            self.wanted.notify_one();
            self.changed.notify_one();
            LockChannel {
                name: name.clone(),
                idle_since: None,
                unheeded: 0,
            }
        });
        lock.idle_since = None;
        lock.unheeded = 0;
    }

    /// Takes in a message.
    pub(crate) fn message(&self, channel: &[u8], payload: &[u8]) {
        let Ok(channel) = std::str::from_utf8(channel) else {
            return;
        };
        if channel == self.channel {
            let (grant, replies) = split(payload);
            if let Some((holder, attempt, grant)) = read_grant(grant) {
                self.waiters.with(holder, |entry| {
                    let reads = entry.data.as_ref().and_then(Work::get::<Reads>);
                    if let (Some(replies), Some(reads)) = (replies, reads) {
                        reads.keep((grant.token, work::read(&replies)));
                    }
                    match self.trusts_messages {
                        true => entry.granted(Some(attempt), grant),
                        false => entry.wake(),
                    }
                });
            }
            return;
        }
        let mut channels = self.channels();
        let Some(lock) = channels.locks.get_mut(channel) else {
            return;
        };
        if !self.waiters.is_watched(&lock.name) {
            lock.unheeded = lock.unheeded.saturating_add(1);
            if lock.unheeded == MAX_UNHEEDED {
                self.unheeded.notify_one();
            }
        }
        self.waiters.wake(&lock.name);
    }

    /// Returns the channels of locks.
    pub(crate) fn of_locks(&self) -> HashSet<String> {
        self.channels().locks.keys().cloned().collect()
    }

    /// Returns the channels of locks that a new connection is to subscribe.
    pub(crate) fn take_all(&self) -> Vec<String> {
        let mut channels = self.channels();
        channels.wanted.clear();
        channels.locks.keys().cloned().collect()
    }

    /// Messages arrive from now on. Earlier ones may be lost, so that all tickets try again.
    pub(crate) fn opened(&self) {
        self.waiters.wake_all();
    }

    /// Returns the channels that are to be subscribed, once.
    pub(crate) fn take_wanted(&self) -> Vec<String> {
        std::mem::take(&mut self.channels().wanted)
    }

    /// Channels of locks were subscribed. Earlier messages were missed, so that their tickets try again.
    pub(crate) fn subscribed(&self, subscribed: &[String]) {
        let channels = self.channels();
        for lock in subscribed.iter().filter_map(|it| channels.locks.get(it)) {
            self.waiters.wake(&lock.name);
        }
    }

    /// Removes the channels that are to be unsubscribed, and returns them.
    pub(crate) fn take_idle(&self) -> Vec<String> {
        let now = Instant::now();
        let idle = |_: &String, lock: &mut LockChannel| {
            if self.waiters.is_watched(&lock.name) {
                lock.idle_since = None;
                return false;
            }
            let since = *lock.idle_since.get_or_insert(now);
            since + LINGER <= now || lock.unheeded >= MAX_UNHEEDED
        };
        let mut channels = self.channels();
        let idle = channels.locks.extract_if(idle);
        let idle: Vec<_> = idle.map(|(channel, _)| channel).collect();
        if !idle.is_empty() {
            self.changed.notify_one();
        }
        idle
    }
}

/// A grant, and what was read with it: RESP behind a NUL byte, which no name has.
fn split(payload: &[u8]) -> (&[u8], Option<Reply>) {
    let Some(end) = payload.iter().position(|byte| *byte == 0) else {
        return (payload, None);
    };
    let replies = redis::parse_redis_value(&payload[end + 1..]);
    (&payload[..end], replies.ok().map(Reply::of))
}

/// `<ticket> <token> <window ms> <attempt> <lock>`
fn read_grant(payload: &[u8]) -> Option<(HolderId, u64, Grant)> {
    let text = std::str::from_utf8(payload).ok()?;
    let mut words = text.splitn(5, ' ');
    let holder = words.next()?.parse().ok()?;
    let token = FencingToken::new(words.next()?.parse().ok()?)?;
    let window = Duration::from_millis(words.next()?.parse().ok()?);
    let attempt = words.next()?.parse().ok()?;
    Some((holder, attempt, Grant::new(token, window)))
}
