//! What is kept: of each ticket, and of the channel of each lock.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lockkit_core::HolderId;
use lockkit_core::backend::Grant;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct State {
    /// Numbers attempts and the opening of channels, in their order.
    pub(super) steps: u64,
    /// The step at which messages began to arrive; `None` while they do not.
    pub(super) open: Option<u64>,
    pub(super) tickets: HashMap<HolderId, Place>,
    pub(super) locks: HashMap<String, Heard>,
    /// Channels of locks that nobody has subscribed yet.
    pub(super) wanted: Vec<String>,
}

/// What is known of a ticket, from its first attempt to its release.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// The step of its last attempt.
    pub(super) written: u64,
    /// The last attempt that was answered with "held".
    pub(super) held: u64,
    pub(super) in_flight: bool,
    /// An attempt may still reach the server.
    pub(super) lost: bool,
    /// Whether the store may know it: the client will release it.
    pub(super) known: bool,
    pub(super) granted: Option<(u64, Grant)>,
    pub(super) retry: bool,
    pub(super) bell: Option<Arc<Notify>>,
}

/// The channel of a lock.
#[derive(Debug)]
pub(super) struct Heard {
    /// The step at which it was subscribed.
    pub(super) open: Option<u64>,
    /// The step of the last message.
    pub(super) told: u64,
    pub(super) waiters: HashSet<HolderId>,
    pub(super) idle_since: Instant,
    /// How many messages have come since, with nobody here who waits.
    pub(super) unheeded: u32,
}

impl Place {
    pub(super) fn wake(&mut self) {
        self.retry = true;
        self.ring();
    }

    pub(super) fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.notify_one();
        }
    }
}
