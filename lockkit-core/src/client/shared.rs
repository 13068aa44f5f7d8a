//! What the handles and guards of one client share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::client::context::Context;
use crate::client::hold::{Hold, HoldOptions};
use crate::client::owner::Owners;
use crate::client::queue::{Key, Queues};
use crate::client::schedule::Schedule;
use crate::contract::{HolderId, LossReason, Ticket};

pub(crate) struct Shared {
    pub(crate) context: Arc<Context>,
    pub(crate) schedule: Arc<Schedule<Held>>,
    pub(crate) queues: Queues,
    pub(crate) owners: Arc<Owners>,
    /// The options of locks that set none.
    pub(crate) options: HoldOptions,
    ids: AtomicU64,
    /// Apart from other ids, so that the numbers of tickets have no gaps.
    tickets: AtomicU64,
}

/// A hold with the client that has it: what guards and the schedule keep. Its methods are in `held.rs`.
#[derive(Clone)]
pub(crate) struct Held {
    pub(crate) shared: Arc<Shared>,
    pub(crate) hold: Arc<Hold>,
}

impl Shared {
    pub(crate) fn new(context: Context, options: HoldOptions) -> Self {
        let context = Arc::new(context);
        Self {
            schedule: Arc::default(),
            queues: Queues::new(context.pending.clone()),
            context,
            owners: Arc::default(),
            options,
            ids: AtomicU64::new(0),
            tickets: AtomicU64::new(0),
        }
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A new ticket, with an identity that was never used. INV-3.
    pub(crate) fn ticket(&self, key: &Key, enqueue: bool) -> Ticket {
        let number = self.tickets.fetch_add(1, Ordering::Relaxed) + 1;
        Ticket {
            name: key.name.clone(),
            holder: HolderId::new(self.context.id, number),
            label: self.context.label.clone(),
            mode: key.mode,
            ttl: key.ttl,
            enqueue,
            work: key.work.clone(),
        }
    }

    /// Whether new acquires are refused.
    pub(crate) fn is_closing(&self) -> bool {
        self.queues.is_closed()
    }
}

impl Drop for Shared {
    /// Ends the renewal task. No hold is left: each one in the schedule keeps the client alive.
    fn drop(&mut self) {
        drop(self.schedule.stop(LossReason::Shutdown));
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.hold.name)
            .field("token", &self.hold.token)
            .field("holder", &self.hold.ticket.holder)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.context.id)
            .field("store", &self.context.store)
            .finish_non_exhaustive()
    }
}
