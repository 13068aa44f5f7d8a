//! The wake-ups of each ticket, kept from its attempt on.

use std::collections::hash_map::Entry as Slot;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::contract::Wake;
use crate::contract::holder::HolderId;
use crate::sync::lock;

/// Wake-ups that were not read yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    wakes: Mutex<VecDeque<Wake>>,
    bell: Notify,
}

impl Inbox {
    fn push(&self, wake: Wake) {
        let mut wakes = lock(&self.wakes);
        // Two hints in a row say no more than one; so an inbox that nobody reads stays small.
        if wake == Wake::Retry && wakes.back() == Some(&Wake::Retry) {
            return;
        }
        wakes.push_back(wake);
        drop(wakes);
        self.bell.notify_one();
    }

    pub(super) fn pop(&self) -> Option<Wake> {
        lock(&self.wakes).pop_front()
    }

    /// Cancel safe: a wake-up leaves the inbox only when it is returned.
    pub(super) async fn next(&self) -> Wake {
        loop {
            if let Some(wake) = self.pop() {
                return wake;
            }
            self.bell.notified().await;
        }
    }
}

/// All inboxes, by ticket.
#[derive(Debug, Default)]
pub(super) struct Inboxes {
    of: HashMap<HolderId, Reader>,
    /// Wake-ups are dropped: a fault that a test asked for.
    pub(super) losing: bool,
}

#[derive(Debug, Default)]
struct Reader {
    inbox: Arc<Inbox>,
    watches: u32,
}

impl Inboxes {
    /// Keeps wake-ups of `holder` from now on.
    pub(super) fn open(&mut self, holder: HolderId) {
        self.of.entry(holder).or_default();
    }

    /// Keeps a wake-up for whoever watches; without `keep_early`, only if somebody watches already.
    pub(super) fn push(&mut self, holder: HolderId, wake: Wake, keep_early: bool) {
        if self.losing {
            return;
        }
        if let Some(reader) = self.of.get(&holder)
            && (keep_early || reader.watches > 0)
        {
            reader.inbox.push(wake);
        }
    }

    /// Opens a watch; `first` comes before everything else that it yields.
    pub(super) fn watch(&mut self, holder: HolderId, first: Option<Wake>) -> Arc<Inbox> {
        let reader = self.of.entry(holder).or_default();
        reader.watches += 1;
        if let Some(wake) = first {
            reader.inbox.push(wake);
        }
        Arc::clone(&reader.inbox)
    }

    /// Closes a watch of a ticket that is still `wanted` if it holds or waits.
    pub(super) fn unwatch(&mut self, holder: HolderId, wanted: bool) {
        if let Slot::Occupied(mut slot) = self.of.entry(holder) {
            let reader = slot.get_mut();
            reader.watches = reader.watches.saturating_sub(1);
            if reader.watches == 0 && !wanted {
                slot.remove();
            }
        }
    }

    /// The ticket neither holds nor waits any more: its inbox goes with its last watch.
    pub(super) fn retire(&mut self, holder: HolderId) {
        if let Slot::Occupied(slot) = self.of.entry(holder)
            && slot.get().watches == 0
        {
            slot.remove();
        }
    }

    /// The ticket was released: nobody reads its inbox any more.
    pub(super) fn close(&mut self, holder: HolderId) {
        if !self.of.is_empty() {
            self.of.remove(&holder);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    #[cfg(test)]
    pub(super) fn peek(&self, holder: HolderId) -> Option<Wake> {
        let reader = self.of.get(&holder)?;
        lock(&reader.inbox.wakes).front().cloned()
    }
}
