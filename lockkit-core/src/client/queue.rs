//! The locks that this client holds and waits for, by name.
//!
//! A client shows the store one ticket for each (name, mode, ttl, work) that its tasks wait for, however
//! many they are. Behind it they wait in a local queue, first come, first served. Tasks that may hold
//! together wait in several lanes, each with a ticket of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use crate::client::hold::{Hold, HoldOptions};
use crate::client::outstanding::{Outstanding, Pending};
use crate::contract::{Error, LockName, Mode, Result, Work};
use crate::store::sync::lock;

/// The most tickets that a client shows the store for one name, mode, ttl and work at a time.
const LANES: u32 = 64;

/// Which local queue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    lane: u32,
    /// What the store does when it grants.
    pub(crate) work: Option<Work>,
}

impl Key {
    pub(crate) const fn new(name: LockName, mode: Mode, ttl: Duration, work: Option<Work>) -> Self {
        let lane = 0;
        Self {
            name,
            mode,
            ttl,
            lane,
            work,
        }
    }
}

/// A task that waits in a local queue.
pub(crate) struct Waiter {
    pub(crate) id: u64,
    pub(crate) joined: Instant,
    /// Without one it gives up after an outage.
    pub(crate) deadline: Option<Instant>,
    pub(crate) options: HoldOptions,
    /// Takes the hold with one guard counted. The receiver closes before it is dropped, and ends a hold
    /// that it has not taken. INV-7.
    pub(crate) reply: oneshot::Sender<Result<Arc<Hold>>>,
}

impl Waiter {
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }
}

struct Queue {
    key: Key,
    waiters: VecDeque<Waiter>,
    /// Wakes the task that serves the queue: the last waiter has left, another deadline came in, or
    /// the client closes.
    wake: Arc<Notify>,
    /// Counts the withdrawal of a queue that all waiters have left, or are to leave, as unfinished work.
    leaving: Option<Outstanding>,
}

#[derive(Default)]
struct Entry {
    holds: usize,
    queues: Vec<Queue>,
}

pub(crate) struct Queues {
    entries: Mutex<HashMap<LockName, Entry>>,
    /// Whether the client closes. Set under the mutex: [`close`](Self::close) sees all who came in before.
    closed: AtomicBool,
    /// How many holds there are that were not left to their leases.
    holds: watch::Sender<usize>,
    pending: Pending,
}

impl Queues {
    pub(crate) fn new(pending: Pending) -> Self {
        Self {
            entries: Mutex::default(),
            closed: AtomicBool::new(false),
            holds: watch::Sender::default(),
            pending,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Joins the queue of `key`, in the lane where the fewest wait; returns whether the caller is the first, who is to have
    /// the queue served, or `None` if the client closes.
    pub(crate) fn enter(&self, key: &mut Key, waiter: Waiter) -> Option<bool> {
        let mut entries = lock(&self.entries);
        if self.is_closed() {
            return None;
        }
        let entry = entries.entry(key.name.clone()).or_default();
        key.lane = entry.lane(key.mode);
        if let Some(queue) = entry.queue(key) {
            if waiter.deadline.is_some() {
                queue.wake.notify_one();
            }
            queue.waiters.push_back(waiter);
            queue.leaving = None;
            return Some(false);
        }
        entry.queues.push(Queue {
            key: key.clone(),
            waiters: VecDeque::from([waiter]),
            wake: Arc::new(Notify::new()),
            leaving: None,
        });
        Some(true)
    }

    /// Whether any task of this client holds or waits for `name`. A queue that all waiters have left
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

    /// Takes a waiter out that was cancelled or whose deadline passed.
    pub(crate) fn leave(&self, key: &Key, id: u64) {
        self.with(key, |queue| {
            queue.waiters.retain(|waiter| waiter.id != id);
            if queue.waiters.is_empty() {
                queue.wake.notify_one();
            }
        });
    }

    /// Takes the first waiter out. A queue without another one does not count any more: it is about to end.
    pub(crate) fn pop(&self, key: &Key) -> Option<Waiter> {
        self.with(key, |queue| queue.waiters.pop_front()).flatten()
    }

    /// Ends the queue if it has no waiter; returns what counted its withdrawal, or `Err` if it has one.
    pub(crate) fn close_if_idle(&self, key: &Key) -> Result<Option<Outstanding>, Occupied> {
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(&key.name);
        let queue = entry.and_then(|entry| entry.queue(key));
        if queue.is_some_and(|queue| !queue.waiters.is_empty()) {
            return Err(Occupied);
        }
        Ok(take(&mut entries, key).and_then(|queue| queue.leaving))
    }

    /// Ends the queue with all its waiters: their receivers see the senders go.
    pub(crate) fn abandon(&self, key: &Key) {
        let queue = take(&mut lock(&self.entries), key);
        // Dropped last and unlocked: what waits in a sender may come back to this table.
        drop(queue);
    }

    /// Sends an error to the waiters for which there is one.
    pub(crate) fn fail(&self, key: &Key, error: impl Fn(&Waiter) -> Option<Error>) {
        let mut failed = Vec::new();
        self.with(key, |queue| {
            for waiter in std::mem::take(&mut queue.waiters) {
                match error(&waiter) {
                    Some(error) => failed.push((waiter.reply, error)),
                    None => queue.waiters.push_back(waiter),
                }
            }
        });
        for (reply, error) in failed {
            // A receiver that has gone does not need the error.
            let _ = reply.send(Err(error));
        }
    }

    /// When the first of the waiters gives up.
    pub(crate) fn first_deadline(&self, key: &Key) -> Option<Instant> {
        let deadlines = |queue: &mut Queue| {
            let waiters = queue.waiters.iter();
            waiters.filter_map(|waiter| waiter.deadline).min()
        };
        self.with(key, deadlines).flatten()
    }

    /// What wakes the task that serves a queue.
    pub(crate) fn wake(&self, key: &Key) -> Option<Arc<Notify>> {
        self.with(key, |queue| Arc::clone(&queue.wake))
    }

    /// Refuses new callers and wakes the tasks of all queues. What they withdraw is unfinished work. May be called again.
    pub(crate) fn close(&self) {
        let mut entries = lock(&self.entries);
        self.closed.store(true, Ordering::Release);
        for queue in entries.values_mut().flat_map(|entry| &mut entry.queues) {
            queue.leaving.get_or_insert_with(|| self.pending.begin());
            queue.wake.notify_one();
        }
    }

    /// Does something with a queue. The withdrawal of the ticket of one without waiters is unfinished work.
    fn with<T>(&self, key: &Key, act: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        let mut entries = lock(&self.entries);
        let queue = entries.get_mut(&key.name)?.queue(key)?;
        let result = act(queue);
        if queue.waiters.is_empty() {
            queue.leaving.get_or_insert_with(|| self.pending.begin());
        }
        Some(result)
    }
}

/// Says that a queue has a waiter.
#[derive(Debug)]
pub(crate) struct Occupied;

impl Entry {
    /// The lane where the fewest wait: there is one for all acquires that exclude each other.
    fn lane(&self, mode: Mode) -> u32 {
        let mut waiting = [0; LANES as usize];
        for queue in self.queues.iter().filter(|queue| queue.key.mode == mode) {
            // One that all waiters have left still has its ticket.
            waiting[queue.key.lane as usize] += queue.waiters.len().max(1);
        }
        let lanes = 0..mode.room().min(LANES);
        lanes
            .min_by_key(|lane| waiting[*lane as usize])
            .unwrap_or(0)
    }

    fn queue(&mut self, key: &Key) -> Option<&mut Queue> {
        self.queues.iter_mut().find(|queue| queue.key == *key)
    }

    fn is_idle(&self) -> bool {
        self.holds == 0 && self.queues.is_empty()
    }
}

/// Takes a queue out, and forgets a name that is not used any more.
fn take(entries: &mut HashMap<LockName, Entry>, key: &Key) -> Option<Queue> {
    let entry = entries.get_mut(&key.name)?;
    let at = entry.queues.iter().position(|queue| queue.key == *key);
    let queue = at.map(|at| entry.queues.swap_remove(at));
    if entry.is_idle() {
        entries.remove(&key.name);
    }
    queue
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::lease::Lease;

    fn key() -> Key {
        let name = LockName::new("a").unwrap();
        Key::new(name, Mode::Exclusive, Duration::from_secs(1), None)
    }

    fn waiter(id: u64) -> Waiter {
        let options = HoldOptions {
            lease: Lease::default(),
            max_hold: None,
            min_hold: None,
            owner: None,
            former: Duration::ZERO,
        };
        Waiter {
            id,
            joined: Instant::now(),
            deadline: None,
            options,
            reply: oneshot::channel().0,
        }
    }

    /// It may have seen the client open before.
    #[test]
    fn caller_that_comes_after_the_close_is_refused() {
        let queues = Queues::new(Pending::default());
        queues.close();
        assert_eq!(queues.enter(&mut key(), waiter(1)), None);
        assert!(lock(&queues.entries).is_empty());
    }

    #[test]
    fn nothing_is_kept_of_names_that_are_not_used_any_more() {
        let queues = Queues::new(Pending::default());
        let key = key();
        let enter = || queues.enter(&mut key.clone(), waiter(1));
        assert_eq!(enter(), Some(true));
        queues.hold_began(&key.name);
        assert!(queues.pop(&key).is_some());
        assert!(queues.close_if_idle(&key).is_ok());
        assert_eq!(lock(&queues.entries).len(), 1);
        queues.hold_ended(&key.name);
        assert!(lock(&queues.entries).is_empty());
        assert_eq!(enter(), Some(true));
        queues.leave(&key, 1);
        assert!(queues.close_if_idle(&key).is_ok());
        assert!(lock(&queues.entries).is_empty());
        assert_eq!(enter(), Some(true));
        queues.abandon(&key);
        assert!(lock(&queues.entries).is_empty());
    }

    #[test]
    fn waiter_of_a_former_queue_does_not_leave_its_successor() {
        let queues = Queues::new(Pending::default());
        let mut key = key();
        assert_eq!(queues.enter(&mut key, waiter(2)), Some(true));
        queues.leave(&key, 1);
        assert!(queues.is_busy(&key.name));
    }

    #[test]
    fn queue_that_has_served_its_last_waiter_is_not_busy() {
        let queues = Queues::new(Pending::default());
        let mut key = key();
        assert_eq!(queues.enter(&mut key, waiter(1)), Some(true));
        assert!(queues.is_busy(&key.name));
        assert!(queues.pop(&key).is_some());
        assert!(!queues.is_busy(&key.name));
    }
}
