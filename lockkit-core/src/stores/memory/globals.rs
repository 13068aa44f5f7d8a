//! What all locks of a store share: tokens, sessions, wake-ups and tombstones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{
    Capabilities, FencingToken, Grant, HolderId, LossReason, Queueing, TtlOf, Waiting,
};
use crate::store::Tombstones;
use crate::store::waiters::{Entry, Waiters};
use crate::time::clock::Moment;
use crate::time::lease::queue_window;

const FIRST_TOKEN: FencingToken = match FencingToken::new(1) {
    Some(token) => token,
    None => unreachable!(),
};

/// A client's connection, by number.
pub(super) type Session = u64;

#[derive(Debug)]
pub(super) struct Globals {
    /// The time of the present step.
    pub(super) now: Moment,
    pub(super) rules: Capabilities,
    /// One counter serves all names: each name sees it grow, and nothing is kept for a name that
    /// is not in use.
    last_token: Option<FencingToken>,
    /// The last keep-alive of each session; empty where each hold has its own lease.
    pub(super) alive: BTreeMap<Session, Moment>,
    pub(super) waiters: Arc<Waiters>,
    /// Wake-ups are dropped: a fault that a test asked for.
    pub(super) loses_wakes: bool,
    pub(super) tombstones: Tombstones,
}

impl Globals {
    pub(super) fn new(rules: Capabilities) -> Self {
        Self {
            now: Moment::from_nanos(0),
            rules,
            last_token: None,
            alive: BTreeMap::new(),
            waiters: Arc::default(),
            loses_wakes: false,
            tombstones: Tombstones::default(),
        }
    }

    pub(super) fn barging(&self) -> bool {
        self.rules.queueing == Queueing::Barging
    }

    pub(super) fn pushes(&self) -> bool {
        self.rules.waiting == Waiting::Push
    }

    pub(super) fn in_sessions(&self) -> bool {
        self.rules.ttl_of == TtlOf::PerSession
    }

    pub(super) fn next_token(&mut self) -> FencingToken {
        let next = match self.last_token {
            Some(last) => FencingToken::new(last.get() + 1).unwrap_or(FIRST_TOKEN),
            None => FIRST_TOKEN,
        };
        self.last_token = Some(next);
        next
    }

    /// How long a place without a heartbeat and a pushed grant without a response last.
    pub(super) fn window(&self, ttl: Duration) -> Duration {
        queue_window(&self.rules, ttl)
    }

    /// When a lease that begins now ends by itself; a session's hold ends with the session.
    pub(super) fn lease_end(&self, ttl: Duration) -> Moment {
        if self.in_sessions() {
            Moment::from_nanos(u64::MAX)
        } else {
            self.now + ttl
        }
    }

    /// The words of a grant on `session`, or on a lease of `ttl` of its own.
    pub(super) fn grant(&self, token: FencingToken, session: Session, ttl: Duration) -> Grant {
        match self.alive.get(&session) {
            Some(&since) => Grant::new(token, self.rules.max_ttl).with_since(since),
            None => Grant::new(token, ttl),
        }
    }

    /// The session begins, or proves that it lives. As with a real session, a request does so only
    /// when the last proof is a while ago: a lease may be older than the attempt that relies on it.
    pub(super) fn keep_alive(&mut self, session: Session) {
        if !self.in_sessions() {
            return;
        }
        let last = self.alive.entry(session).or_insert(self.now);
        if *last + self.rules.max_ttl / 4 <= self.now {
            *last = self.now;
        }
    }

    pub(super) fn last_keep_alive(&self, session: Session) -> Option<Moment> {
        self.alive.get(&session).copied()
    }

    /// A session that was silent for its whole lease.
    pub(super) fn silent_session(&self) -> Option<Session> {
        let (now, lease) = (self.now, self.rules.max_ttl);
        let mut alive = self.alive.iter();
        let silent = alive.find(|(_, last)| **last + lease <= now);
        silent.map(|(&session, _)| session)
    }

    /// Sends a wake-up.
    pub(super) fn tell(&self, holder: HolderId, wake: impl FnOnce(&mut Entry<()>)) {
        if !self.loses_wakes {
            self.waiters.with(holder, wake);
        }
    }

    /// Ends the wake-ups of a ticket that lost its hold or its place; with a last one, where the store
    /// reports losses.
    pub(super) fn lose(&self, holder: HolderId, reason: LossReason) {
        if self.rules.tells_loss {
            self.tell(holder, |entry| entry.lost(reason));
        }
        self.waiters.retire(holder);
    }
}
