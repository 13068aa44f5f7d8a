//! What this client holds and waits for, by name.
//!
//! A client shows the store one ticket for each (name, mode, ttl) that its tasks wait for, however
//! many they are; behind it they stand in a local queue, first come, first served.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use crate::backend::Mode;
use crate::error::{BackendError, Error, Result};
use crate::guard::Guard;
use crate::lease::Lease;
use crate::lent::Borrowed;
use crate::name::LockName;
use crate::reaper::Outstanding;
use crate::sync::lock;

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
    /// Whether it has a deadline of its own; without one it gives up after an outage.
    pub(crate) bounded: bool,
    pub(crate) wish: Wish,
    pub(crate) reply: oneshot::Sender<Result<Guard>>,
}

#[derive(Debug)]
struct Queue {
    mode: Mode,
    ttl: Duration,
    waiters: VecDeque<Waiter>,
    /// Tells the driver that nobody waits any more, or that the client closes.
    wake: Arc<Notify>,
    /// The last failure of the store, for waiters whose deadline passes during an outage.
    failure: Option<BackendError>,
    /// Counts the withdrawal of a queue that everybody has left, or is to leave, as unfinished work of
    /// the client.
    leaving: Option<Outstanding>,
    /// The driver, if the caller that waits alone has it.
    lent: Borrowed,
}

#[derive(Debug, Default)]
struct Entry {
    holds: usize,
    queues: Vec<Queue>,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Mutex<HashMap<LockName, Entry>>,
    /// How many holds all entries have.
    holds: watch::Sender<usize>,
}

/// How a caller enters a queue.
pub(crate) enum Turn {
    /// Nobody of this client waits: the caller attempts by itself, for the queue.
    First,
    /// It stands behind others, whose driver must not depend on one of them.
    Behind(Borrowed),
}

impl Table {
    /// Joins the queue of `key`; `waiter` is asked for only if the caller stands behind others.
    pub(crate) fn enter(&self, key: &Key, waiter: impl FnOnce() -> Waiter) -> Turn {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(key.name.clone()).or_default();
        if let Some(queue) = entry.queue(key) {
            queue.waiters.push_back(waiter());
            queue.leaving = None;
            return Turn::Behind(mem::take(&mut queue.lent));
        }
        entry.queues.push(Queue {
            mode: key.mode,
            ttl: key.ttl,
            waiters: VecDeque::new(),
            wake: Arc::new(Notify::new()),
            failure: None,
            leaving: None,
            lent: Borrowed::default(),
        });
        Turn::First
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

    /// Waits until this client holds nothing.
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
    /// Answers whether it waits alone; the driver is lent to it then.
    pub(crate) fn first_must_wait(&self, key: &Key, waiter: Waiter, lent: Borrowed) -> bool {
        let waits = self.with(key, |queue| {
            queue.waiters.push_front(waiter);
            queue.lent = lent;
            queue.waiters.len() == 1
        });
        waits.unwrap_or(false)
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

    /// Answers `error` to the waiters that `gives_up` chooses.
    pub(crate) fn fail(&self, key: &Key, error: &Error, gives_up: impl Fn(&Waiter) -> bool) {
        let failed: VecDeque<_> = self
            .with(key, |queue| {
                let (failed, kept) = queue.waiters.drain(..).partition(|waiter| gives_up(waiter));
                queue.waiters = kept;
                failed
            })
            .unwrap_or_default();
        for waiter in failed {
            // A receiver that has gone does not need the error.
            let _ = waiter.reply.send(Err(error.clone()));
        }
    }

    /// Notes, or forgets, the last failure of the store.
    pub(crate) fn note_failure(&self, key: &Key, failure: Option<BackendError>) {
        self.with(key, |queue| queue.failure = failure);
    }

    pub(crate) fn failure(&self, key: &Key) -> Option<BackendError> {
        self.with(key, |queue| queue.failure.clone()).flatten()
    }

    /// What wakes the driver of a queue.
    pub(crate) fn wake(&self, key: &Key) -> Option<Arc<Notify>> {
        self.with(key, |queue| Arc::clone(&queue.wake))
    }

    /// Wakes every driver: the client closes. What they withdraw counts as unfinished work. Answers
    /// those that are lent, whose callers may not poll them.
    pub(crate) fn close(&self, leaving: impl Fn() -> Outstanding) -> Vec<Borrowed> {
        let mut entries = lock(&self.entries);
        let queues = entries.values_mut().flat_map(|entry| &mut entry.queues);
        queues
            .map(|queue| {
                queue.leaving.get_or_insert_with(&leaving);
                queue.wake.notify_one();
                mem::take(&mut queue.lent)
            })
            .collect()
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
