//! What this client holds and waits for, by name.
//!
//! A client shows the store one ticket for each (name, mode, ttl) that its tasks wait for, however
//! many they are; behind it they stand in a local queue, first come, first served.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use crate::client::guard::Guard;
use crate::client::reaper::Outstanding;
use crate::contract::Mode;
use crate::contract::error::{Error, Result};
use crate::contract::name::LockName;
use crate::sync::lock;
use crate::time::lease::Lease;

/// Which local queue.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
}

/// What a caller wants of the hold that it will get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) owner: Option<u64>,
}

/// A task that waits in a local queue.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) id: u64,
    pub(crate) joined: Instant,
    /// Without one it gives up after an outage.
    pub(crate) deadline: Option<Instant>,
    pub(crate) wish: Wish,
    pub(crate) reply: oneshot::Sender<Result<Guard>>,
}

impl Waiter {
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

#[derive(Debug)]
struct Queue {
    mode: Mode,
    ttl: Duration,
    waiters: VecDeque<Waiter>,
    /// Tells the driver that nobody waits any more, that another deadline came in, or that the
    /// client closes.
    wake: Arc<Notify>,
    /// Counts the withdrawal of a queue that everybody has left, or is to leave, as unfinished work of
    /// the client.
    leaving: Option<Outstanding>,
}

#[derive(Debug, Default)]
struct Entry {
    holds: usize,
    queues: Vec<Queue>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Mutex<HashMap<LockName, Entry>>,
    /// How many holds there are that were not left to their leases.
    holds: watch::Sender<usize>,
}

impl Table {
    /// Joins the queue of `key`; answers whether the caller is the first. One that `attempts` by
    /// itself, for the queue, is no `waiter` then.
    pub(crate) fn enter(&self, key: &Key, attempts: bool, waiter: impl FnOnce() -> Waiter) -> bool {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(key.name.clone()).or_default();
        if let Some(queue) = entry.queue(key) {
            let waiter = waiter();
            if waiter.deadline.is_some() {
                queue.wake.notify_one();
            }
            queue.waiters.push_back(waiter);
            queue.leaving = None;
            return false;
        }
        let waiters = (!attempts).then(waiter).into_iter().collect();
        entry.queues.push(Queue {
            mode: key.mode,
            ttl: key.ttl,
            waiters,
            wake: Arc::new(Notify::new()),
            leaving: None,
        });
        true
    }

    /// Whether any task of this client holds or waits for `name`. A queue that everybody has left
    /// does not count, although its ticket may not be withdrawn yet.
    pub(crate) fn is_busy(&self, name: &LockName) -> bool {
        let entries = lock(&self.entries);
        let waits = |queue: &Queue| queue.leaving.is_none();
        entries
            .get(name)
            .is_some_and(|entry| entry.holds > 0 || entry.queues.iter().any(waits))
    }

    pub(crate) fn hold_began(&self, name: &LockName) {
        lock(&self.entries).entry(name.clone()).or_default().holds += 1;
        self.holds.send_modify(|holds| *holds += 1);
    }

    /// A hold has ended for those who had its guards.
    pub(crate) fn hold_ended(&self, name: &LockName) {
        let mut entries = lock(&self.entries);
        if let Some(entry) = entries.get_mut(name) {
            entry.holds = entry.holds.saturating_sub(1);
            if entry.is_idle() {
                entries.remove(name);
            }
        }
        drop(entries);
        self.holds
            .send_modify(|holds| *holds = holds.saturating_sub(1));
    }

    /// Waits until this client holds nothing but what was left to its lease.
    pub(crate) async fn nothing_held(&self) {
        // It fails only without a sender, and that is in `self`.
        let _ = self.holds.subscribe().wait_for(|holds| *holds == 0).await;
    }

    /// The caller that attempted for the queue has the lock: begins its hold and, if nobody stands
    /// behind it, ends the queue. Answers whether somebody does.
    pub(crate) fn first_got_it(&self, key: &Key) -> bool {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&key.name) else {
            return false;
        };
        entry.holds += 1;
        self.holds.send_modify(|holds| *holds += 1);
        let others = entry
            .queue(key)
            .is_some_and(|queue| !queue.waiters.is_empty());
        if !others {
            entry.remove(key);
        }
        others
    }

    /// The caller that attempted for the queue must wait after all, before those who came later.
    pub(crate) fn first_must_wait(&self, key: &Key, waiter: Waiter) {
        self.with(key, |queue| queue.waiters.push_front(waiter));
    }

    /// The caller that attempted for the queue has gone; if nobody stands behind it, `leaving`
    /// counts until its ticket is withdrawn.
    pub(crate) fn first_left(&self, key: &Key, leaving: Outstanding) {
        self.with(key, |queue| {
            if queue.waiters.is_empty() {
                queue.leaving = Some(leaving);
            }
        });
    }

    /// Takes a waiter out that was cancelled or whose deadline passed.
    pub(crate) fn leave(&self, key: &Key, id: u64, leaving: impl FnOnce() -> Outstanding) {
        self.with(key, |queue| {
            let before = queue.waiters.len();
            queue.waiters.retain(|waiter| waiter.id != id);
            if queue.waiters.len() < before && queue.waiters.is_empty() {
                queue.leaving = Some(leaving());
                queue.wake.notify_one();
            }
        });
    }

    /// Takes the head, whom the driver serves.
    pub(crate) fn pop(&self, key: &Key) -> Option<Waiter> {
        self.with(key, |queue| queue.waiters.pop_front()).flatten()
    }

    /// Ends the queue if nobody waits; answers what counted its withdrawal, or `Err` if somebody does.
    pub(crate) fn close_if_idle(&self, key: &Key) -> Result<Option<Outstanding>, Occupied> {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&key.name) else {
            return Ok(None);
        };
        if entry
            .queue(key)
            .is_some_and(|queue| !queue.waiters.is_empty())
        {
            return Err(Occupied);
        }
        let leaving = entry.remove(key).and_then(|queue| queue.leaving);
        if entry.is_idle() {
            entries.remove(&key.name);
        }
        Ok(leaving)
    }

    /// Ends the queue with everybody in it: their receivers see the senders go.
    pub(crate) fn abandon(&self, key: &Key) {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&key.name) else {
            return;
        };
        let queue = entry.remove(key);
        if entry.is_idle() {
            entries.remove(&key.name);
        }
        // Dropped last and unlocked: what waits in a sender may come back to this table.
        drop(entries);
        drop(queue);
    }

    /// Answers an error to the waiters for which there is one. If nobody is left, `leaving` counts
    /// until the ticket of the queue is withdrawn.
    pub(crate) fn fail(
        &self,
        key: &Key,
        error: impl Fn(&Waiter) -> Option<Error>,
        leaving: impl FnOnce() -> Outstanding,
    ) {
        let mut failed = Vec::new();
        self.with(key, |queue| {
            for waiter in std::mem::take(&mut queue.waiters) {
                match error(&waiter) {
                    Some(error) => failed.push((waiter.reply, error)),
                    None => queue.waiters.push_back(waiter),
                }
            }
            if queue.waiters.is_empty() && !failed.is_empty() {
                queue.leaving.get_or_insert_with(leaving);
            }
        });
        for (reply, error) in failed {
            // A receiver that has gone does not need the error.
            let _ = reply.send(Err(error));
        }
    }

    /// When the first of the waiters gives up.
    pub(crate) fn first_deadline(&self, key: &Key) -> Option<Instant> {
        let first = |queue: &mut Queue| {
            queue
                .waiters
                .iter()
                .filter_map(|waiter| waiter.deadline)
                .min()
        };
        self.with(key, first).flatten()
    }

    /// What wakes the driver of a queue.
    pub(crate) fn wake(&self, key: &Key) -> Option<Arc<Notify>> {
        self.with(key, |queue| Arc::clone(&queue.wake))
    }

    /// Wakes every driver: the client closes. What they withdraw counts as unfinished work.
    pub(crate) fn close(&self, leaving: impl Fn() -> Outstanding) {
        let mut entries = lock(&self.entries);
        for queue in entries.values_mut().flat_map(|entry| &mut entry.queues) {
            queue.leaving.get_or_insert_with(&leaving);
            queue.wake.notify_one();
        }
    }

    fn with<T>(&self, key: &Key, act: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        lock(&self.entries).get_mut(&key.name)?.queue(key).map(act)
    }
}

/// Says that somebody waits in a queue.
#[derive(Debug)]
pub(crate) struct Occupied;

impl Entry {
    fn queue(&mut self, key: &Key) -> Option<&mut Queue> {
        self.queues
            .iter_mut()
            .find(|queue| queue.mode == key.mode && queue.ttl == key.ttl)
    }

    fn remove(&mut self, key: &Key) -> Option<Queue> {
        let at = self
            .queues
            .iter()
            .position(|queue| queue.mode == key.mode && queue.ttl == key.ttl)?;
        Some(self.queues.swap_remove(at))
    }

    fn is_idle(&self) -> bool {
        self.holds == 0 && self.queues.is_empty()
    }
}
