//! Keeps holds alive: one task per client that renews leases in batches and signals losses in time.
//!
//! Readers who come from Redisson know it as the watchdog.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use crate::client::hold::{Due, Hold, LONGEST_SLEEP};
use crate::contract::error::{BackendError, LossReason};
use crate::contract::{Ticket, Wake, Watch};
use crate::mutants::Mutant;
use crate::sync::lock;
use crate::time::backoff::retry_delay;
use crate::time::clock::{Clock, Moment};
use crate::time::lease::renewal_timeout;

/// Renewals that are due within this time share a request.
const SLACK: Duration = Duration::from_millis(50);
/// So long the task waits with nothing to look after before it sleeps until it is woken. Short holds
/// that follow each other wake it once in this time and not each.
const LINGER: Duration = Duration::from_millis(50);
/// Into how many parts a batch is split that ran into its time limit.
const SPLIT: usize = 8;
/// At most so many parts are asked for at once. One bad lock needs `SPLIT` of them; a store that
/// answers nobody would be sent as many requests as there are holds, just when it can bear least.
const PARTS_IN_FLIGHT: usize = 64;

type Key = (Moment, u64);

#[derive(Debug)]
pub(crate) struct Keeper {
    schedule: Mutex<Schedule>,
    changed: Notify,
    /// Turns of the parts of batches that ran into their time limit.
    parts: Semaphore,
}

#[derive(Debug)]
struct Schedule {
    holds: BTreeMap<Key, Arc<Hold>>,
    /// Until when the task sleeps; an earlier event wakes it.
    sleeps_until: Moment,
    stopped: Option<LossReason>,
}

impl Keeper {
    pub(crate) fn new() -> Self {
        Self {
            schedule: Mutex::new(Schedule {
                holds: BTreeMap::new(),
                sleeps_until: Moment::from_nanos(0),
                stopped: None,
            }),
            changed: Notify::new(),
            parts: Semaphore::new(PARTS_IN_FLIGHT),
        }
    }

    /// Looks after `hold` from `event` on.
    pub(crate) fn put(&self, hold: &Arc<Hold>, event: Moment) {
        let mut schedule = lock(&self.schedule);
        if let Some(reason) = schedule.stopped {
            drop(schedule);
            hold.lose(reason);
            return;
        }
        schedule.take(hold);
        schedule
            .holds
            .insert((event, hold.ticket.holder.number()), Arc::clone(hold));
        hold.due.store(event.as_nanos(), Ordering::Relaxed);
        let wake = event < schedule.sleeps_until;
        if wake {
            schedule.sleeps_until = event;
        }
        drop(schedule);
        if wake {
            self.changed.notify_one();
        }
        // It may have ended, and been forgotten, before it came in here.
        if hold.has_ended() {
            self.remove(hold);
        }
    }

    /// Forgets a hold that has ended.
    pub(crate) fn remove(&self, hold: &Hold) {
        let removed = lock(&self.schedule).take(hold);
        // Unlocked first: the last reference may end the client.
        drop(removed);
    }

    /// Ends every hold, now and from now on.
    pub(crate) fn stop(&self, reason: LossReason) {
        let mut schedule = lock(&self.schedule);
        schedule.stopped = Some(reason);
        let holds = std::mem::take(&mut schedule.holds);
        drop(schedule);
        for hold in holds.into_values() {
            hold.lose(reason);
        }
        self.changed.notify_one();
    }

    /// The keeper's task. When it is dropped with its runtime, also before it began, nobody renews any
    /// more: every hold is lost then, early rather than late.
    pub(crate) fn run(
        self: Arc<Self>,
        clock: Arc<dyn Clock>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let keeper = StopOnDrop(self);
        async move { keeper.0.keep(clock).await }
    }

    async fn keep(&self, clock: Arc<dyn Clock>) {
        let mut woken = false;
        loop {
            let changed = self.changed.notified();
            let now = clock.now();
            let Some(due) = self.take_due(now) else {
                return;
            };
            self.serve(due, now);
            let sleep = self.sleep_until(clock.now(), woken);
            woken = match sleep {
                Some(sleep) => timeout(sleep, changed).await.is_ok(),
                None => {
                    changed.await;
                    true
                }
            };
        }
    }

    /// Takes out the holds that something is due for; `None` once the keeper is stopped.
    fn take_due(&self, now: Moment) -> Option<Vec<Arc<Hold>>> {
        let mut schedule = lock(&self.schedule);
        if schedule.stopped.is_some() {
            return None;
        }
        let rest = schedule.holds.split_off(&(now + SLACK, u64::MAX));
        let due = std::mem::replace(&mut schedule.holds, rest);
        // Whatever comes in while this round is served is seen before the task sleeps.
        schedule.sleeps_until = Moment::from_nanos(0);
        for hold in due.values() {
            hold.due.store(0, Ordering::Relaxed);
        }
        Some(due.into_values().collect())
    }

    /// How long to sleep; `None` while there is nothing to look after. `woken`: there was just now.
    fn sleep_until(&self, now: Moment, woken: bool) -> Option<Duration> {
        let mut schedule = lock(&self.schedule);
        let until = match schedule.holds.first_key_value() {
            Some(((event, _), _)) => (*event).min(now + LONGEST_SLEEP),
            None if woken => now + LINGER,
            None => {
                schedule.sleeps_until = Moment::from_nanos(u64::MAX);
                return None;
            }
        };
        schedule.sleeps_until = until;
        Some(until.since(now))
    }

    fn serve(&self, due: Vec<Arc<Hold>>, now: Moment) {
        let mut batches: BTreeMap<Duration, Vec<Renewing>> = BTreeMap::new();
        for hold in due {
            match hold.due(now, SLACK) {
                Due::Ended => {}
                Due::Later(event) => self.put(&hold, event),
                Due::Watch(kept, event) => {
                    self.put(&hold, event);
                    let core = Arc::clone(&hold.core);
                    let task = core.runtime.spawn_abortable(watch(Arc::clone(&hold), kept));
                    hold.watched_by(task);
                }
                Due::Renew(ticket, event) => {
                    self.put(&hold, event);
                    let alone = hold.suspect.load(Ordering::Relaxed);
                    let renewing = Renewing { hold, ticket };
                    if alone {
                        start(vec![renewing], true);
                    } else {
                        batches
                            .entry(renewing.ticket.ttl)
                            .or_default()
                            .push(renewing);
                    }
                }
            }
        }
        for batch in batches.into_values() {
            start(batch, false);
        }
    }
}

impl Schedule {
    fn take(&mut self, hold: &Hold) -> Option<Arc<Hold>> {
        let due = Moment::from_nanos(hold.due.load(Ordering::Relaxed));
        self.holds.remove(&(due, hold.ticket.holder.number()))
    }
}

struct StopOnDrop(Arc<Keeper>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop(LossReason::Shutdown);
    }
}

/// A hold whose renewal is in flight, and the ticket that was sent.
struct Renewing {
    hold: Arc<Hold>,
    ticket: Ticket,
}

/// Renews a batch in a task of its own, so that nothing waits for it. INV-10.
fn start(batch: Vec<Renewing>, in_turn: bool) {
    if let Some(first) = batch.first() {
        let runtime = first.hold.core.runtime.clone();
        // Detached: it ends with its time limit.
        if in_turn {
            drop(runtime.spawn(renew_in_turn(batch)));
        } else {
            drop(runtime.spawn(renew(batch)));
        }
    }
}

/// Renews a part of a batch when it has its turn; what has ended by then is left out.
async fn renew_in_turn(mut batch: Vec<Renewing>) {
    let Some(first) = batch.first() else { return };
    let core = Arc::clone(&first.hold.core);
    // Never closed.
    let turn = core.keeper.parts.acquire().await;
    batch.retain(|renewing| renewing.hold.check().is_ok());
    renew(batch).await;
    drop(turn);
}

async fn renew(batch: Vec<Renewing>) {
    let Some(first) = batch.first() else { return };
    let core = Arc::clone(&first.hold.core);
    let tickets: Vec<Ticket> = batch
        .iter()
        .map(|renewing| renewing.ticket.clone())
        .collect();
    let mut limit = renewal_timeout(first.ticket.ttl, core.timeout);
    if core.broken.is(Mutant::OneBadRenewalStopsAll) {
        limit = Duration::from_secs(86_400);
    }
    let sent = core.clock.now();
    let Ok(answers) = timeout(limit, core.store.renew(&tickets)).await else {
        let error = BackendError::timeout(core.store.backend(), "renew", limit);
        for renewing in &batch {
            renewing.hold.failed(error.clone());
        }
        return split(batch);
    };
    let sent = if core.broken.is(Mutant::WindowFromReply) {
        core.clock.now()
    } else {
        sent
    };
    for (renewing, answer) in batch.into_iter().zip(answers) {
        renewing.hold.answered(sent, renewing.ticket.ttl, answer);
    }
}

/// Asks again in parts, each in a request of its own: one of the holds may be what blocks the batch.
fn split(mut batch: Vec<Renewing>) {
    if let [alone] = batch.as_slice() {
        alone.hold.suspect.store(true, Ordering::Relaxed);
        alone.hold.renew_again(alone.ticket.ttl);
        return;
    }
    let part = batch.len().div_ceil(SPLIT);
    while !batch.is_empty() {
        let rest = batch.split_off(part.min(batch.len()));
        start(std::mem::replace(&mut batch, rest), true);
    }
}

/// Hears of the loss of a hold from the store, on the watch that its waiting left or on a new one.
async fn watch(hold: Arc<Hold>, mut kept: Option<Box<dyn Watch>>) {
    let core = Arc::clone(&hold.core);
    let mut errors = 0;
    loop {
        let opened = match kept.take() {
            Some(watch) => Ok(watch),
            None => core.store.watch(&hold.ticket).await,
        };
        if let Ok(mut watch) = opened {
            loop {
                match watch.changed().await {
                    Ok(Wake::Lost(reason)) => return hold.lose(reason),
                    Ok(Wake::Retry | Wake::Granted(_)) => errors = 0,
                    Err(_) => break,
                }
            }
        }
        tokio::time::sleep(retry_delay(errors, core.jitter())).await;
        errors += 1;
    }
}
