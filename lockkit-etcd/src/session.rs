//! A session: a lease that many tickets share, and what the client knows of the keys that depend on it.
//!
//! There is no I/O here. The task of `keep_alive.rs` keeps the lease alive.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockkit_core::FencingToken;
use lockkit_core::clock::{Clock, Moment};
use lockkit_core::contract::Grant;
use lockkit_core::store::lock;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::error::{Failed, Result};
use crate::keys::number;

/// A lease takes no new key once its keys have this many bytes: the reply that lists all of them must fit
/// into one message.
const FULL: usize = 2 << 20;
/// A key is about this much longer than its directory, with what a message adds.
const KEY: usize = 40;
/// After an attempt, a renewal or a release, a lease is kept alive for `ttl / ACTIVE`. A client that hangs loses its
/// holds after that.
const ACTIVE: u32 = 2;
/// A new key asks for a keep-alive when the last one is older than `ttl / YOUNG`, so that grants last.
const YOUNG: u32 = 6;
/// A session that was last confirmed longer than `ttl / OLD` ago is confirmed before it is used again.
const OLD: u32 = 2;

/// A request for a keep-alive, and where its result goes.
pub(crate) type Request = oneshot::Sender<Result<()>>;

/// A handle of a lease. Its task ends when the last handle is dropped, and revokes the lease.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) lease: Arc<Lease>,
    pub(crate) requests: mpsc::UnboundedSender<Request>,
}

impl Session {
    /// Keeps the session alive for a while, because of an attempt. For a `new` key it asks for a keep-alive
    /// if the last one is old, and does not wait for it.
    pub(crate) fn touch(&self, new: bool) {
        self.lease.activate();
        if new && !self.lease.is_confirmed_within(YOUNG) {
            drop(self.keep_alive());
        }
    }

    /// Whether the lease can be used for a new key. Asks the server if the last confirmation is old.
    pub(crate) async fn is_fresh(&self) -> bool {
        let lease = &self.lease;
        lease.is_confirmed_within(OLD) || (self.keep_alive().await.is_ok() && lease.is_alive())
    }

    /// Whether a keep-alive later than `reported` is recent, so that a renewal needs no other.
    pub(crate) fn is_renewed_since(&self, reported: Moment) -> bool {
        self.lease.activate();
        self.lease.confirmed() > reported && self.lease.is_confirmed_within(YOUNG)
    }

    /// Asks at once for a keep-alive that begins after this call, and returns its result.
    pub(crate) fn keep_alive(&self) -> impl Future<Output = Result<()>> + use<> {
        let (request, result) = oneshot::channel();
        drop(self.requests.send(request));
        async {
            let ended = || Failed::LeaseGone.into_error("renew");
            result.await.unwrap_or_else(|_| Err(ended()))
        }
    }
}

/// A lease, which the handles and the task share.
#[derive(Debug)]
pub(crate) struct Lease {
    /// Its number at the server.
    pub(crate) id: i64,
    pub(crate) ttl: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The time before the last acknowledged keep-alive, or the grant of the lease, was written.
    confirmed: Moment,
    /// It takes no tickets: the server says that it has ended, or no ticket has needed it for long.
    ended: bool,
    bytes: usize,
    /// The highest number that a key has had.
    highest: u64,
    /// The numbers of the tickets' keys.
    used: HashSet<u64>,
    /// Numbers whose keys are certainly gone. They are used again, because the server scans each key that
    /// ever was below a lock until its history is compacted.
    free: BTreeSet<u64>,
    /// Whether the key of a ticket that left may still exist, or be created by a late request. The task
    /// then lists the keys even if none of them is a hold.
    doubtful: bool,
    /// The last attempt, renewal or release.
    last_use: Instant,
}

impl Lease {
    /// A lease that the server has just granted, to a request that was written at `confirmed`.
    pub(crate) fn new(id: i64, ttl: Duration, clock: &Arc<dyn Clock>, confirmed: Moment) -> Self {
        let state = State {
            confirmed,
            ended: false,
            bytes: 0,
            highest: 0,
            used: HashSet::new(),
            free: BTreeSet::new(),
            doubtful: false,
            last_use: Instant::now(),
        };
        Self {
            id,
            ttl,
            clock: Arc::clone(clock),
            state: Mutex::new(state),
        }
    }

    /// A grant on this lease, whose holds count from its last confirmation.
    pub(crate) fn grant(&self, token: FencingToken) -> Grant {
        Grant::new(token, self.ttl).with_since(self.confirmed())
    }

    pub(crate) fn has_tickets(&self) -> bool {
        !self.lock().used.is_empty()
    }

    /// Whether it has not ended, as far as is known.
    pub(crate) fn is_alive(&self) -> bool {
        !self.lock().ended
    }

    /// The server says that the lease has ended.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
    }

    /// Whether it takes another ticket.
    pub(crate) fn takes_tickets(&self) -> bool {
        let state = self.lock();
        !state.ended && state.bytes < FULL
    }

    /// Adds a ticket whose lock has a directory of this length. Returns the number of its key, or `None` if
    /// the session is about to end.
    pub(crate) fn join(&self, directory: usize) -> Option<u64> {
        let mut state = self.lock();
        if state.ended {
            return None;
        }
        state.bytes += directory + KEY;
        let number = state.free.pop_first().unwrap_or(state.highest + 1);
        state.highest = state.highest.max(number);
        state.used.insert(number);
        Some(number)
    }

    /// Removes a ticket. The number of its key is used again if the key is certainly `gone`, and no
    /// abandoned request can still create or delete it.
    pub(crate) fn leave(&self, directory: usize, number: u64, gone: bool) {
        let mut state = self.lock();
        state.used.remove(&number);
        if gone {
            state.free.insert(number);
        } else {
            state.doubtful = true;
        }
        state.bytes = state.bytes.saturating_sub(directory + KEY);
        state.last_use = Instant::now();
    }

    /// Ends a session that had no ticket for a whole ttl.
    pub(crate) fn end_if_unused(&self) -> bool {
        let mut state = self.lock();
        let unused = state.used.is_empty() && state.last_use.elapsed() >= self.ttl;
        state.ended |= unused;
        unused
    }

    /// Whether the task sends keep-alives without being asked.
    pub(crate) fn is_active(&self) -> bool {
        self.lock().last_use.elapsed() < self.ttl / ACTIVE
    }

    /// Keeps it alive for a while.
    fn activate(&self) {
        self.lock().last_use = Instant::now();
    }

    pub(crate) fn is_doubtful(&self) -> bool {
        self.lock().doubtful
    }

    /// The time before the last acknowledged request that confirmed the lease was written.
    pub(crate) fn confirmed(&self) -> Moment {
        self.lock().confirmed
    }

    /// Whether the lease was confirmed within `ttl / part`.
    fn is_confirmed_within(&self, part: u32) -> bool {
        self.clock.now().since(self.confirmed()) < self.ttl / part
    }

    /// The lease was confirmed by a request that was written at `sent`.
    pub(crate) fn confirm(&self, sent: Moment) {
        let mut state = self.lock();
        state.confirmed = state.confirmed.max(sent);
    }

    /// The keys that belong to no ticket and never will. A free number may belong to another ticket soon:
    /// its key was seen before it was deleted.
    pub(crate) fn unclaimed(&self, keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let state = self.lock();
        let is_known = |it| state.used.contains(&it) || state.free.contains(&it);
        let unclaimed = |key: &&Vec<u8>| !number(key).is_some_and(is_known);
        keys.iter().filter(unclaimed).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
