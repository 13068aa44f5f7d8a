//! Wake-ups: what has come for each ticket, kept from before its attempt is written.
//!
//! A store object has one channel of its own, on which its waiters hear of their grants. Beside that
//! it listens to the channel of each lock that somebody waits for here, on which Redisson's releases
//! and those that find an empty queue are told; it goes on for a while after the last waiter, so that
//! a lock that is often waited for costs no subscription each time. It ends sooner where nobody here
//! waits any more and others go on: each of their messages would cost the server and this process
//! some time, which is theirs as well.

mod place;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkit_core::backend::{Attempt, Grant, Ticket, Wake, Watch};
use lockkit_core::{BackendError, FencingToken, HolderId, Outcome};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::place::{Heard, State};
use self::watch::RedisWatch;
use crate::error::fault;

/// How long a lock's channel is heard after its last waiter here.
const LINGER: Duration = Duration::from_secs(10);

/// So many messages may come on it in that time. A waiter that comes back finds a few of its own.
const UNHEEDED: u32 = 16;

/// What a test may break on purpose.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promises {
    /// A grant that comes before the watch is opened is kept for it.
    pub(crate) keeps_early: bool,
    /// A waiter looks again once the channel of its lock is subscribed.
    pub(crate) looks_after_subscribing: bool,
    /// Waiters look again when messages arrive again.
    pub(crate) looks_after_reconnecting: bool,
}

impl Default for Promises {
    fn default() -> Self {
        Self {
            keeps_early: true,
            looks_after_subscribing: true,
            looks_after_reconnecting: true,
        }
    }
}

/// Where wake-ups arrive and waiters look for them.
#[derive(Debug)]
pub(crate) struct Desk {
    /// The channel of this store object.
    channel: String,
    promises: Promises,
    state: Mutex<State>,
    /// Rings when a channel is to be subscribed.
    pub(crate) wanted: Notify,
    /// Rings when enough has been heard on a channel for nothing.
    pub(crate) unheeded: Notify,
}

impl Desk {
    pub(crate) fn new(channel: String, promises: Promises) -> Self {
        Self {
            channel,
            promises,
            state: Mutex::default(),
            wanted: Notify::new(),
            unheeded: Notify::new(),
        }
    }

    /// The channel of this store object.
    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt is about to be written: wake-ups are kept from now on. Answers its number.
    pub(crate) fn attempting(&self, holder: HolderId) -> u64 {
        let mut state = self.lock();
        state.steps += 1;
        let step = state.steps;
        let place = state.tickets.entry(holder).or_default();
        place.written = step;
        place.lost |= place.in_flight;
        place.in_flight = true;
        step
    }

    /// The attempt with this number was answered, or failed.
    pub(crate) fn answered(
        &self,
        ticket: &Ticket,
        step: u64,
        answer: &Result<Attempt, BackendError>,
    ) {
        let mut state = self.lock();
        let Some(place) = state.tickets.get_mut(&ticket.holder) else {
            return;
        };
        place.in_flight = false;
        match answer {
            Ok(Attempt::Granted(_)) => {
                place.known = true;
                place.granted = None;
            }
            Ok(_) => {
                place.known |= ticket.enqueue;
                place.held = step;
                // What came for an earlier attempt has ended since.
                place.granted.take_if(|(beat, _)| *beat < step);
            }
            Err(error) if error.outcome() == Outcome::Indeterminate => {
                place.known = true;
                place.lost = true;
            }
            Err(_) => {}
        }
        if !place.known && !place.lost {
            state.tickets.remove(&ticket.holder);
        }
    }

    /// Forgets a ticket; answers whether a request of it may still reach the server.
    pub(crate) fn forget(&self, holder: HolderId) -> bool {
        let place = self.lock().tickets.remove(&holder);
        // Unknown: released before, and that release was not answered.
        place.is_none_or(|place| place.lost || place.in_flight)
    }

    /// Whether somebody waits for a message.
    pub(crate) fn has_waiters(&self) -> bool {
        let state = self.lock();
        state.locks.values().any(|heard| !heard.waiters.is_empty())
    }

    /// How many tickets and channels of locks are kept.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.tickets.len(), state.locks.len())
    }

    /// Opens the wake-ups of a ticket. `channel` is that of its lock.
    pub(crate) fn watch(
        self: &Arc<Self>,
        ticket: &Ticket,
        channel: String,
    ) -> Result<Box<dyn Watch>, BackendError> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some(opened) = state.open else {
            let why = "no messages can come at the moment: the connection is being made";
            return Err(fault("watch", Outcome::Unavailable, why));
        };
        let bell = Arc::new(Notify::new());
        let place = state.tickets.entry(ticket.holder).or_default();
        place.bell = Some(Arc::clone(&bell));
        place.retry |= place.written < opened && self.promises.looks_after_reconnecting;
        let heard = state.locks.entry(channel.clone()).or_insert_with(|| {
            state.wanted.push(channel.clone());
            self.wanted.notify_one();
            Heard {
                open: None,
                told: 0,
                waiters: HashSet::new(),
                idle_since: Instant::now(),
                unheeded: 0,
            }
        });
        // Told before anybody watched, or not heard at the time of the attempt. Where the channel is
        // not subscribed yet, its opening will wake the ticket.
        let missed = heard
            .open
            .is_some_and(|opened| opened.max(heard.told) > place.written);
        place.retry |= missed && self.promises.looks_after_subscribing;
        heard.waiters.insert(ticket.holder);
        heard.unheeded = 0;
        drop(guard);
        Ok(Box::new(RedisWatch {
            desk: Arc::clone(self),
            holder: ticket.holder,
            channel,
            bell,
        }))
    }

    fn unwatch(&self, holder: HolderId, channel: &str) {
        let mut state = self.lock();
        if let Some(heard) = state.locks.get_mut(channel) {
            heard.waiters.remove(&holder);
            heard.idle_since = Instant::now();
        }
        if let Some(place) = state.tickets.get_mut(&holder) {
            place.bell = None;
            if !place.known && !place.lost && !place.in_flight {
                state.tickets.remove(&holder);
            }
        }
    }

    fn next(&self, holder: HolderId) -> Option<Wake> {
        let mut state = self.lock();
        let place = state.tickets.get_mut(&holder)?;
        if let Some((_, grant)) = place.granted.take() {
            place.retry = false;
            return Some(Wake::Granted(grant));
        }
        std::mem::take(&mut place.retry).then_some(Wake::Retry)
    }

    /// A message has come.
    pub(crate) fn message(&self, channel: &[u8], payload: &[u8]) {
        let Ok(channel) = std::str::from_utf8(channel) else {
            return;
        };
        if channel == self.channel {
            if let Some((holder, beat, grant)) = read_grant(payload) {
                self.granted(holder, beat, grant);
            }
            return;
        }
        let mut state = self.lock();
        state.steps += 1;
        let step = state.steps;
        let State { locks, tickets, .. } = &mut *state;
        let Some(heard) = locks.get_mut(channel) else {
            return;
        };
        heard.told = step;
        if heard.waiters.is_empty() {
            heard.unheeded = heard.unheeded.saturating_add(1);
            if heard.unheeded == UNHEEDED {
                self.unheeded.notify_one();
            }
        }
        for holder in &heard.waiters {
            if let Some(place) = tickets.get_mut(holder) {
                place.wake();
            }
        }
    }

    fn granted(&self, holder: HolderId, beat: u64, grant: Grant) {
        let mut state = self.lock();
        let Some(place) = state.tickets.get_mut(&holder) else {
            return;
        };
        if beat < place.held {
            // It was late: an attempt after it found the lock held. The grant has ended.
            place.wake();
        } else if place.bell.is_some() || self.promises.keeps_early {
            place.granted = Some((beat, grant));
            place.ring();
        }
    }

    /// The channels that are to be heard on a new connection: of this store object, and of locks.
    pub(crate) fn channels(&self) -> (String, Vec<String>) {
        let mut state = self.lock();
        state.wanted.clear();
        (self.channel.clone(), state.locks.keys().cloned().collect())
    }

    /// Messages arrive from now on, on these channels. What came before is not known, so that every
    /// waiter looks again.
    pub(crate) fn opened(&self, channels: &[String]) {
        let mut state = self.lock();
        state.steps += 1;
        let step = state.steps;
        state.open = Some(step);
        for channel in channels {
            if let Some(heard) = state.locks.get_mut(channel) {
                heard.open = Some(step);
            }
        }
        if self.promises.looks_after_reconnecting {
            for place in state.tickets.values_mut() {
                place.wake();
            }
        }
    }

    /// No messages arrive any more.
    pub(crate) fn closed(&self) {
        let mut state = self.lock();
        state.open = None;
        for heard in state.locks.values_mut() {
            heard.open = None;
        }
    }

    /// The channels that are wanted and were not asked for before.
    pub(crate) fn take_wanted(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().wanted)
    }

    /// Channels of locks were subscribed.
    pub(crate) fn heard(&self, channels: &[String]) {
        let mut state = self.lock();
        state.steps += 1;
        let step = state.steps;
        let State { locks, tickets, .. } = &mut *state;
        for channel in channels {
            let Some(heard) = locks.get_mut(channel) else {
                continue;
            };
            heard.open = Some(step);
            if !self.promises.looks_after_subscribing {
                continue;
            }
            for holder in &heard.waiters {
                if let Some(place) = tickets.get_mut(holder) {
                    place.wake();
                }
            }
        }
    }

    /// Takes out the channels that nobody has needed for a while.
    pub(crate) fn take_idle(&self) -> Vec<String> {
        let now = Instant::now();
        let idle = |_: &String, heard: &mut Heard| {
            let long = heard.idle_since + LINGER <= now || heard.unheeded >= UNHEEDED;
            heard.waiters.is_empty() && long
        };
        let mut state = self.lock();
        state
            .locks
            .extract_if(idle)
            .map(|(channel, _)| channel)
            .collect()
    }
}

/// `<ticket> <token> <window ms> <beat> <lock>`
fn read_grant(payload: &[u8]) -> Option<(HolderId, u64, Grant)> {
    let text = std::str::from_utf8(payload).ok()?;
    let mut words = text.splitn(5, ' ');
    let holder = words.next()?.parse().ok()?;
    let token = FencingToken::new(words.next()?.parse().ok()?)?;
    let window = Duration::from_millis(words.next()?.parse().ok()?);
    let beat = words.next()?.parse().ok()?;
    Some((holder, beat, Grant::new(token, window)))
}
