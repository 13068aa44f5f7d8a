//! Which hold needs something next, and when.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::contract::LossReason;
use crate::store::sync::lock;
use crate::time::clock::Moment;

/// How long the task waits with an empty schedule before it sleeps until it is woken. Short holds that
/// follow each other wake it once in this time and not each.
const LINGER: Duration = Duration::from_millis(50);

/// Events of holds, each hold by the number of its ticket and with one event.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    events: Mutex<Events<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct Events<T> {
    by_time: BTreeMap<(Moment, u64), T>,
    moments: HashMap<u64, Moment>,
    /// Until when the task sleeps; an earlier event wakes it.
    sleeps_until: Moment,
    stopped: Option<LossReason>,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            events: Mutex::new(Events {
                by_time: BTreeMap::new(),
                moments: HashMap::new(),
                sleeps_until: Moment::from_nanos(0),
                stopped: None,
            }),
            changed: Notify::new(),
        }
    }
}

impl<T> Schedule<T> {
    /// Sets the next event of a hold. It is read here, so that no earlier reading replaces a later one.
    ///
    /// # Errors
    /// - The reason for which the schedule was stopped: the hold is lost.
    pub(crate) fn put(
        &self,
        number: u64,
        hold: T,
        due: impl FnOnce(&T) -> Moment,
    ) -> Result<(), LossReason> {
        let mut events = lock(&self.events);
        if let Some(reason) = events.stopped {
            return Err(reason);
        }
        let moment = due(&hold);
        let before = events.take(number);
        events.by_time.insert((moment, number), hold);
        events.moments.insert(number, moment);
        let wake = moment < events.sleeps_until;
        if wake {
            events.sleeps_until = moment;
        }
        drop(events);
        drop(before);
        if wake {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Forgets a hold that has ended.
    pub(crate) fn remove(&self, number: u64) {
        let removed = lock(&self.events).take(number);
        // Unlocked first: the last reference may end the client.
        drop(removed);
    }

    /// Refuses every hold from now on, and returns those that it had.
    #[must_use]
    pub(crate) fn stop(&self, reason: LossReason) -> Vec<T> {
        let mut events = lock(&self.events);
        events.stopped = Some(reason);
        events.moments.clear();
        let holds = std::mem::take(&mut events.by_time);
        drop(events);
        self.changed.notify_one();
        holds.into_values().collect()
    }

    /// Takes out the holds whose event is no later than `until`; `None` once the schedule is stopped.
    pub(crate) fn take_due(&self, until: Moment) -> Option<Vec<T>> {
        let mut events = lock(&self.events);
        if events.stopped.is_some() {
            return None;
        }
        let rest = events.by_time.split_off(&(until, u64::MAX));
        let due = std::mem::replace(&mut events.by_time, rest);
        // The task sees whatever comes in while it serves these before it sleeps.
        events.sleeps_until = Moment::from_nanos(0);
        for (_, number) in due.keys() {
            events.moments.remove(number);
        }
        Some(due.into_values().collect())
    }

    /// Sleeps until the next event, at most for `longest`, or until one is put before it; returns
    /// whether one was. `woken`: what it returned the last time.
    pub(crate) async fn sleep(&self, now: Moment, longest: Duration, woken: bool) -> bool {
        let changed = self.changed.notified();
        match self.sleep_until(now, longest, woken) {
            Some(until) => timeout(until.since(now), changed).await.is_ok(),
            None => {
                changed.await;
                true
            }
        }
    }

    /// Until when to sleep; `None` while there is nothing to look after.
    fn sleep_until(&self, now: Moment, longest: Duration, woken: bool) -> Option<Moment> {
        let mut events = lock(&self.events);
        let until = match events.by_time.first_key_value() {
            Some(((event, _), _)) => Some((*event).min(now + longest)),
            None => woken.then(|| now + LINGER),
        };
        events.sleeps_until = until.unwrap_or(Moment::from_nanos(u64::MAX));
        until
    }
}

impl<T> Events<T> {
    fn take(&mut self, number: u64) -> Option<T> {
        let moment = self.moments.remove(&number)?;
        self.by_time.remove(&(moment, number))
    }
}
