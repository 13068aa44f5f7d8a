//! Keeps holds alive: one task per client renews leases in batches and signals losses in time.
//!
//! Readers who come from Redisson know it as the watchdog.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::client::context::Context;
use crate::client::hold::{Due, LONGEST_SLEEP};
use crate::client::schedule::Schedule;
use crate::client::shared::Held;
use crate::contract::{LossReason, Ticket, Wake, Watch};
use crate::time::backoff::Backoff;
use crate::time::clock::{Clock, Moment};
use crate::time::lease::renewal_timeout;

/// Renewals that are due within this time share a request.
const SLACK: Duration = Duration::from_millis(50);
/// Into how many parts a batch is split that ran into its time limit.
const SPLIT: usize = 8;
/// How many parts are in flight at once. One bad lock needs `SPLIT` of them; a store that answers no
/// request would be sent as many as there are holds, just when it can bear least.
pub(crate) const PARTS_IN_FLIGHT: usize = 64;

/// The renewal task. When it is dropped with its runtime, also before it began, no hold is renewed any
/// more: every hold is lost then, early rather than late.
pub(crate) fn run(
    schedule: Arc<Schedule<Held>>,
    clock: Arc<dyn Clock>,
) -> impl Future<Output = ()> + Send + 'static {
    let stop = StopOnDrop(schedule);
    async move {
        let schedule = &stop.0;
        let mut woken = false;
        loop {
            let now = clock.now();
            let Some(due) = schedule.take_due(now + SLACK) else {
                return;
            };
            serve(due, now);
            woken = schedule.sleep(clock.now(), LONGEST_SLEEP, woken).await;
        }
    }
}

/// Ends every hold of a client, now and from now on.
pub(crate) fn stop(schedule: &Schedule<Held>, reason: LossReason) {
    for held in schedule.stop(reason) {
        held.lose(reason);
    }
}

struct StopOnDrop(Arc<Schedule<Held>>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        stop(&self.0, LossReason::Shutdown);
    }
}

fn serve(due: Vec<Held>, now: Moment) {
    let mut batches: BTreeMap<Duration, Vec<Renewing>> = BTreeMap::new();
    for held in due {
        match held.hold.due(now, SLACK) {
            Due::Next(next) => held.follow(next),
            Due::Watch(kept) => {
                held.schedule();
                let runtime = &held.shared.context.runtime;
                let task = runtime.spawn(watch(held.clone(), kept));
                held.hold.watched_by(task.abort_handle());
            }
            Due::Renew(ticket) => {
                held.schedule();
                let alone = held.hold.suspect.load(Ordering::Relaxed);
                let renewing = Renewing { held, ticket };
                if alone {
                    start(vec![renewing], true);
                } else {
                    let batch = batches.entry(renewing.ticket.ttl).or_default();
                    batch.push(renewing);
                }
            }
        }
    }
    for batch in batches.into_values() {
        start(batch, false);
    }
}

/// A hold whose renewal is in flight, and the ticket that was sent.
struct Renewing {
    held: Held,
    ticket: Ticket,
}

/// Renews a batch in a task of its own, so that nothing waits for it. INV-10. A part of a batch waits for
/// its turn. What has ended when the request is written is left out.
fn start(mut batch: Vec<Renewing>, in_turn: bool) {
    let Some(first) = batch.first() else { return };
    let context = Arc::clone(&first.held.shared.context);
    let runtime = context.runtime.clone();
    let task = async move {
        // Never closed.
        let _turn = match in_turn {
            true => context.renewals.acquire().await.ok(),
            false => None,
        };
        batch.retain(|renewing| renewing.held.check().is_ok());
        renew(&context, batch).await;
    };
    // Detached: it ends with its time limit.
    drop(runtime.spawn(task));
}

async fn renew(context: &Context, batch: Vec<Renewing>) {
    let Some(first) = batch.first() else { return };
    let limit = renewal_timeout(first.ticket.ttl, context.timeout);
    let tickets = batch.iter().map(|renewing| renewing.ticket.clone());
    let tickets: Vec<Ticket> = tickets.collect();
    let sent = context.clock.now();
    let Ok(answers) = timeout(limit, context.store.renew(&tickets)).await else {
        for renewing in &batch {
            let error = context.timed_out("renew", limit);
            renewing.held.hold.failed(error);
        }
        return split(batch);
    };
    let mut answers = answers.into_iter();
    for Renewing { held, ticket } in batch {
        let answer = answers.next();
        let answer = answer.unwrap_or_else(|| Err(context.timed_out("renew", limit)));
        held.follow(held.hold.answered(sent, ticket.ttl, answer));
    }
}

/// Asks again in parts, each in a request of its own: one of the holds may be what blocks the batch.
fn split(mut batch: Vec<Renewing>) {
    if let [alone] = batch.as_slice() {
        let Renewing { held, ticket } = alone;
        held.hold.suspect.store(true, Ordering::Relaxed);
        return held.follow(held.hold.renew_again(ticket.ttl));
    }
    let part = batch.len().div_ceil(SPLIT);
    while !batch.is_empty() {
        let rest = batch.split_off(part.min(batch.len()));
        start(std::mem::replace(&mut batch, rest), true);
    }
}

/// Waits for the store to report the loss of a hold, on the watch that its waiting left or on a new one.
async fn watch(held: Held, mut kept: Option<Box<dyn Watch>>) {
    let context = &held.shared.context;
    let mut pauses = Backoff::default();
    loop {
        let opened = match kept.take() {
            Some(watch) => Ok(watch),
            None => context.store.watch(&held.hold.ticket).await,
        };
        if let Ok(mut watch) = opened {
            loop {
                match watch.changed().await {
                    Ok(Wake::Lost(reason)) => return held.lose(reason),
                    Ok(Wake::Retry | Wake::Granted(_)) => pauses.reset(),
                    Err(_) => break,
                }
            }
        }
        sleep(pauses.pause()).await;
    }
}
