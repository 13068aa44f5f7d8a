//! What a store knows of each ticket, from its first attempt to its release, with its wake-ups.
//!
//! A store object has one `Arc<Waiters<T>>`, where `T` is what the store itself keeps of a ticket. It
//! calls
//! 1. [`attempted`](Waiters::attempted) before it writes an attempt: wake-ups are kept from now on;
//! 2. [`answered`](Waiters::answered) with the result, which forgets a ticket that left nothing behind;
//! 3. [`watch`](Waiters::watch) to open the wake-ups: those that came since the attempt are yielded first;
//! 4. [`wake`](Waiters::wake) when a lock may be free, [`wake_all`](Waiters::wake_all) when the source
//!    of wake-ups opens, because some may have been missed, and [`with`](Waiters::with) for news of one
//!    ticket: [`Entry::granted`], [`Entry::lost`];
//! 5. [`forget`](Waiters::forget) before it writes a release, to learn whether a late attempt of the
//!    ticket can still reach the server, and where the client [forgets](crate::contract::DistributedLock::forget) it;
//! 6. [`refuse`](Waiters::refuse) and [`is_refused`](Waiters::is_refused), if the store itself refuses the late
//!    attempts of released tickets.
//!
//! There is no I/O here and no clock. One mutex guards everything, and no value of `T` is dropped under it
//! by these functions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::contract::{
    Attempt, BackendError, Grant, HolderId, LockName, LossReason, Outcome, Ticket, Wake, Watch,
};
use crate::store::sync::lock;
use crate::store::tombstones::Tombstones;

/// The tickets of a store object.
#[derive(Debug, Default)]
pub struct Waiters<T = ()> {
    state: Mutex<State<T>>,
}

#[derive(Debug, Default)]
struct State<T> {
    /// Numbers the attempts of all tickets.
    attempts: u64,
    entries: HashMap<HolderId, Entry<T>>,
    /// The tickets of each lock.
    names: HashMap<LockName, Vec<HolderId>>,
    refused: Tombstones,
}

/// What is known of one ticket.
#[derive(Debug)]
pub struct Entry<T> {
    /// What the store itself keeps of the ticket.
    pub data: T,
    name: LockName,
    /// The number of the last attempt.
    attempt: u64,
    /// The number of the last attempt that found the lock held.
    held: u64,
    /// Attempts without a response, which may still reach the server.
    unanswered: u32,
    /// Whether the ticket may hold or wait at the server, so that the client will release it.
    known: bool,
    retry: bool,
    /// The grant, and the attempt that it belongs to.
    grant: Option<(u64, Grant)>,
    lost: Option<LossReason>,
    watches: u32,
    /// Made by the first watch.
    notify: Option<Arc<Notify>>,
}

/// What was known of a ticket when it was forgotten.
#[derive(Debug)]
#[non_exhaustive]
pub struct Forgotten<T> {
    /// What the store itself kept of it.
    pub data: T,
    /// Whether an attempt had no response, so that it may still reach the server.
    pub unanswered: bool,
}

impl<T: Default> Waiters<T> {
    /// Keeps wake-ups of the ticket from now on, because an attempt is about to be written. Returns the
    /// number of the attempt, which is larger than all before it.
    pub fn attempted(&self, ticket: &Ticket) -> u64 {
        let mut state = lock(&self.state);
        state.attempts += 1;
        let number = state.attempts;
        let entry = state.entry(ticket);
        entry.attempt = number;
        entry.unanswered = entry.unanswered.saturating_add(1);
        // The attempt finds out what the wake-up was about.
        entry.retry = false;
        number
    }

    /// Opens the wake-ups of a ticket. One that was not attempted here is told to try again.
    pub fn watch(self: &Arc<Self>, ticket: &Ticket) -> TicketWatch<T> {
        let mut state = lock(&self.state);
        let entry = state.entry(ticket);
        entry.retry |= entry.attempt == 0;
        entry.watches += 1;
        let notify = entry.notify.get_or_insert_default();
        TicketWatch {
            notify: Arc::clone(notify),
            holder: ticket.holder,
            waiters: Arc::clone(self),
        }
    }
}

impl<T> Waiters<T> {
    /// Takes in the result of an attempt. Forgets the ticket if the server cannot know it: the client
    /// does not release such a ticket.
    pub fn answered(&self, ticket: &Ticket, number: u64, result: &Result<Attempt, BackendError>) {
        let mut state = lock(&self.state);
        let Some(entry) = state.entries.get_mut(&ticket.holder) else {
            return;
        };
        match result {
            Ok(Attempt::Granted(_)) => {
                entry.known = true;
                entry.grant = None;
            }
            Ok(Attempt::Held { .. }) => {
                entry.known |= ticket.enqueue;
                entry.held = number;
                // A grant of an earlier attempt has ended since.
                entry.grant.take_if(|(attempt, _)| *attempt < number);
            }
            Err(error) if error.outcome() == Outcome::Indeterminate => return,
            Err(_) => {}
        }
        entry.unanswered = entry.unanswered.saturating_sub(1);
        forget_unused(state, ticket.holder);
    }

    /// Changes what is known of one ticket; `None` if it is not known. `change` must not call these
    /// functions.
    pub fn with<R>(&self, holder: HolderId, change: impl FnOnce(&mut Entry<T>) -> R) -> Option<R> {
        lock(&self.state).entries.get_mut(&holder).map(change)
    }

    /// Changes what is known of each ticket, in no order. `change` must not call these functions.
    pub fn for_each(&self, mut change: impl FnMut(HolderId, &mut Entry<T>)) {
        for (holder, entry) in &mut lock(&self.state).entries {
            change(*holder, entry);
        }
    }

    /// Tells the tickets of a lock that it may be free.
    pub fn wake(&self, name: &LockName) {
        let mut state = lock(&self.state);
        let State { entries, names, .. } = &mut *state;
        for holder in names.get(name).into_iter().flatten() {
            if let Some(entry) = entries.get_mut(holder) {
                entry.wake();
            }
        }
    }

    /// Tells all tickets to try again.
    pub fn wake_all(&self) {
        self.for_each(|_, entry| entry.wake());
    }

    /// Forgets a ticket that is to be released. `None` if it is not known: it may have been forgotten
    /// before a release that had no response.
    pub fn forget(&self, holder: HolderId) -> Option<Forgotten<T>> {
        let entry = lock(&self.state).remove(holder)?;
        Some(Forgotten {
            unanswered: entry.unanswered > 0,
            data: entry.data,
        })
    }

    /// Refuses the attempts of a ticket from now on, because it was released.
    pub fn refuse(&self, holder: HolderId) {
        lock(&self.state).refused.insert(holder);
    }

    /// Whether the attempts of a ticket are refused.
    pub fn is_refused(&self, holder: HolderId) -> bool {
        lock(&self.state).refused.contains(holder)
    }

    /// Forgets a ticket that the server does not know any more, once no watch is open. Until then a loss
    /// can be read.
    pub fn retire(&self, holder: HolderId) {
        let mut state = lock(&self.state);
        if let Some(entry) = state.entries.get_mut(&holder) {
            entry.known = false;
            entry.unanswered = 0;
        }
        forget_unused(state, holder);
    }

    /// Whether a watch is open for any ticket of a lock.
    pub fn is_watched(&self, name: &LockName) -> bool {
        let state = lock(&self.state);
        let mut holders = state.names.get(name).into_iter().flatten();
        holders.any(|holder| state.entries.get(holder).is_some_and(Entry::is_watched))
    }

    /// Whether any watch is open.
    pub fn has_watches(&self) -> bool {
        lock(&self.state).entries.values().any(Entry::is_watched)
    }

    /// How many tickets are known.
    pub fn len(&self) -> usize {
        lock(&self.state).entries.len()
    }

    /// Whether no ticket is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Entry<T> {
    /// The lock that the ticket is for.
    pub const fn name(&self) -> &LockName {
        &self.name
    }

    /// Whether a watch is open.
    pub const fn is_watched(&self) -> bool {
        self.watches > 0
    }

    /// The lock may be free: the ticket is to try again.
    pub fn wake(&mut self) {
        self.retry = true;
        self.notify();
    }

    /// The server has granted the lock to the ticket, for its attempt with this number, or for its last
    /// one if the server does not say which. A grant for an attempt before one that found the lock held
    /// has ended, so that it is a mere wake-up.
    pub fn granted(&mut self, attempt: Option<u64>, grant: Grant) {
        let attempt = attempt.unwrap_or(self.attempt);
        if attempt < self.held {
            self.wake();
        } else {
            self.grant = Some((attempt, grant));
            self.notify();
        }
    }

    /// The hold, or the place in the queue, is gone. What was not read before has ended with it.
    pub fn lost(&mut self, reason: LossReason) {
        self.lost = Some(reason);
        self.retry = false;
        self.grant = None;
        self.notify();
    }

    /// The ticket has begun anew at the server. Wake-ups that were not read do not matter any more.
    pub fn restart(&mut self) {
        self.retry = false;
        self.grant = None;
        self.lost = None;
    }

    fn notify(&self) {
        if let Some(notify) = &self.notify {
            notify.notify_one();
        }
    }

    pub(crate) fn next(&mut self) -> Option<Wake> {
        if let Some(reason) = self.lost.take() {
            return Some(Wake::Lost(reason));
        }
        if let Some((_, grant)) = self.grant.take() {
            self.retry = false;
            return Some(Wake::Granted(grant));
        }
        std::mem::take(&mut self.retry).then_some(Wake::Retry)
    }
}

impl<T: Default> State<T> {
    fn entry(&mut self, ticket: &Ticket) -> &mut Entry<T> {
        self.entries.entry(ticket.holder).or_insert_with(|| {
            let holders = self.names.entry(ticket.name.clone()).or_default();
            holders.push(ticket.holder);
            Entry {
                data: T::default(),
                name: ticket.name.clone(),
                attempt: 0,
                held: 0,
                unanswered: 0,
                known: false,
                retry: false,
                grant: None,
                lost: None,
                watches: 0,
                notify: None,
            }
        })
    }
}

impl<T> State<T> {
    fn remove(&mut self, holder: HolderId) -> Option<Entry<T>> {
        let entry = self.entries.remove(&holder)?;
        if let Some(holders) = self.names.get_mut(&entry.name) {
            holders.retain(|other| *other != holder);
            if holders.is_empty() {
                self.names.remove(&entry.name);
            }
        }
        Some(entry)
    }
}

/// Forgets a ticket that neither the server nor a watch knows, and drops it after the mutex.
fn forget_unused<T>(mut state: MutexGuard<'_, State<T>>, holder: HolderId) {
    let unused = |entry: &Entry<T>| !entry.known && entry.unanswered == 0 && entry.watches == 0;
    let unused = state.entries.get(&holder).is_some_and(unused);
    let removed = if unused { state.remove(holder) } else { None };
    drop(state);
    drop(removed);
}

/// The wake-ups of one ticket: a loss first, then a grant, then the word to try again.
#[derive(Debug)]
pub struct TicketWatch<T = ()> {
    waiters: Arc<Waiters<T>>,
    holder: HolderId,
    notify: Arc<Notify>,
}

#[async_trait]
impl<T: Send + 'static> Watch for TicketWatch<T> {
    async fn changed(&mut self) -> Result<Wake, BackendError> {
        loop {
            if let Some(wake) = self.waiters.with(self.holder, Entry::next).flatten() {
                return Ok(wake);
            }
            self.notify.notified().await;
        }
    }
}

impl<T> Drop for TicketWatch<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.waiters.state);
        if let Some(entry) = state.entries.get_mut(&self.holder) {
            entry.watches = entry.watches.saturating_sub(1);
        }
        forget_unused(state, self.holder);
    }
}
