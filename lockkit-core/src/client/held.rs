//! What follows when a hold begins, changes or ends: for the schedule, the queues, the owners and the
//! store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::client::hold::{
    Ending, Failure, GuardEnd, Hold, HoldOptions, LONGEST_SLEEP, Next, Phase,
};
use crate::client::outstanding::Outstanding;
use crate::client::reaper::release_later;
use crate::client::shared::{Held, Shared};
#[cfg(feature = "tracing")]
use crate::contract::error::last_failure;
use crate::contract::{Grant, LossReason, Result, Ticket, Watch};
use crate::time::clock::Moment;

impl Held {
    /// Begins a hold on a lease that was set at `since`, with one guard. There is no await between a
    /// grant and this. INV-7.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        ticket: Ticket,
        grant: Grant,
        since: Moment,
        options: HoldOptions,
        watch: Option<Box<dyn Watch>>,
    ) -> Self {
        shared.queues.hold_began(&ticket.name);
        let hold = Hold::new(&shared.context, ticket, grant, since, options, watch);
        let held = Self {
            shared: Arc::clone(shared),
            hold: Arc::new(hold),
        };
        held.schedule();
        held
    }

    /// Whether the lock is held, by the clock.
    pub(crate) fn check(&self) -> Result<()> {
        self.on(Hold::check)
    }

    /// How long the hold lasts without another renewal; zero if it is lost.
    pub(crate) fn remaining(&self) -> Duration {
        self.on(Hold::remaining).unwrap_or_default()
    }

    /// Ends the hold for this client alone, as [`Hold::leave`]. Returns what [`drop_guard`](Self::drop_guard) does.
    pub(crate) fn leave(&self, releases: bool) -> Result<(Moment, Outstanding)> {
        let (ending, until) = self.on(|hold| hold.leave(releases))?;
        Ok((until, self.settle(ending)))
    }

    /// Takes one guard away. Of a hold that ends with it and whose ticket is to be released, returns until when the
    /// client believed in it, and what counts as unfinished until the release does.
    pub(crate) fn drop_guard(&self) -> Result<Option<(Moment, Outstanding)>> {
        match self.on(Hold::drop_guard)? {
            GuardEnd::Shared => Ok(None),
            GuardEnd::Kept => {
                self.shared.queues.hold_ended(&self.hold.ticket.name);
                self.hold.ended.notify_waiters();
                self.schedule();
                Ok(None)
            }
            GuardEnd::Release(ending, until) => {
                // Before the release is sent, so that no renewal of a hold that has ended goes out.
                Ok(Some((until, self.settle(ending))))
            }
        }
    }

    /// The hold is gone.
    pub(crate) fn lose(&self, reason: LossReason) {
        self.follow(self.hold.lose(reason));
    }

    /// Waits for the loss; for ever if the hold is released, and then without keeping the client.
    ///
    /// It reads the clock itself, on the runtime of the task that waits if that one has timers: the client's
    /// may stand still.
    pub(crate) async fn lost(self) -> LossReason {
        loop {
            let notified = self.hold.ended.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            let left = self.remaining();
            match self.hold.phase() {
                Phase::Held => {}
                Phase::Lost(reason) => return reason,
                Phase::Released => break,
            }
            if self.shared.context.runtime.has_time_here() {
                let sleep = left.clamp(Duration::from_millis(1), LONGEST_SLEEP);
                // The next round tells which of the two came first.
                let _ = timeout(sleep, notified).await;
            } else {
                // Until the renewal task, on the client's runtime, notices the loss.
                notified.await;
            }
        }
        drop(self);
        std::future::pending().await
    }

    /// Releases the ticket in the background.
    pub(crate) fn release_later(&self) {
        release_later(&self.shared.context, self.hold.to_release());
    }

    /// Carries out what follows from a change of the hold.
    pub(crate) fn follow(&self, next: Next) {
        match next {
            Next::Nothing => {}
            Next::Schedule => self.schedule(),
            Next::End(ending) => drop(self.settle(ending)),
        }
    }

    /// Does something with the hold, and what follows if it was found lost.
    pub(crate) fn on<T>(&self, act: impl FnOnce(&Hold) -> Result<T, Failure>) -> Result<T> {
        act(&self.hold).map_err(|failure| {
            if let Some(ending) = failure.ending {
                drop(self.settle(*ending));
            }
            failure.error
        })
    }

    fn number(&self) -> u64 {
        self.hold.ticket.holder.number()
    }

    /// The renewal task looks at the hold when something is due next.
    pub(crate) fn schedule(&self) {
        let schedule = &self.shared.schedule;
        let due = |held: &Self| held.hold.next_event();
        if let Err(reason) = schedule.put(self.number(), self.clone(), due) {
            return self.lose(reason);
        }
        // It may have ended, and been removed, before it came in here.
        if self.hold.has_ended() {
            schedule.remove(self.number());
        }
    }

    /// Does what follows from the end of the hold, once. Returns what counts as unfinished until its release does.
    fn settle(&self, ending: Ending) -> Outstanding {
        let (shared, context, name) = (&self.shared, &self.shared.context, &self.hold.ticket.name);
        // First: who waits until nothing is held looks for unfinished work then.
        let unfinished = context.pending.begin();
        ending.stop_watching();
        shared.schedule.remove(self.number());
        if !ending.kept {
            shared.queues.hold_ended(name);
        }
        if let Some(owner) = self.hold.owner {
            shared.owners.forget(name, owner, &self.hold);
        }
        self.hold.ended.notify_waiters();
        match ending.phase {
            Phase::Lost(reason) => {
                // At once, also while there are guards: a session would keep a key for ever.
                if ending.kept && context.lease_ends_hold() {
                    context.store.forget(self.hold.ticket.holder);
                } else {
                    self.release_later();
                }
                self.trace_loss(reason);
            }
            Phase::Released if ending.kept => self.release_later(),
            Phase::Released | Phase::Held => {}
        }
        unfinished
    }

    /// Leaves a trace of a loss that concerns a guard.
    #[cfg(feature = "tracing")]
    fn trace_loss(&self, reason: LossReason) {
        let Hold { name, token, .. } = &*self.hold;
        if self.hold.guards() > 0 {
            let expired = reason == LossReason::Expired;
            let failure = self.hold.failure().filter(|_| expired);
            let reason = format!("{reason}{}", last_failure(failure.as_ref()));
            tracing::warn!(lock = %name, %token, %reason, "lock lost");
        }
    }

    #[cfg(not(feature = "tracing"))]
    #[expect(clippy::unused_self, reason = "the feature `tracing` reports it")]
    const fn trace_loss(&self, _: LossReason) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::guard::Guard;
    use crate::client::lock_client::LockClient;
    use crate::contract::Renewal;
    use crate::memory::MemoryStore;

    async fn guard() -> Guard {
        let client = LockClient::new(MemoryStore::new()).unwrap();
        client.lock("a").unwrap().acquire().await.unwrap()
    }

    #[tokio::test]
    async fn a_hold_that_was_lost_is_not_released() {
        let guard = guard().await;
        let held = guard.held();
        held.check().unwrap();
        held.lose(LossReason::Superseded);
        assert!(held.drop_guard().is_err());
    }

    #[tokio::test]
    async fn the_reply_to_an_older_renewal_does_not_defer_the_last_lease() {
        let client = LockClient::new(MemoryStore::new()).unwrap();
        let lock = client
            .lock("a")
            .unwrap()
            .with_min_hold(Duration::from_mins(10));
        let guard = lock.acquire().await.unwrap();
        let held = guard.held().clone();
        let (ticket, sent) = held.on(Hold::renewal).unwrap();
        // Asks for a lease of ten minutes at once.
        drop(guard);
        let answer = Ok(Renewal::renewed(ticket.ttl));
        held.follow(held.hold.answered(sent, ticket.ttl, answer));
        assert!(held.hold.next_event() <= held.shared.context.clock.now());
    }

    #[tokio::test]
    async fn a_hold_that_has_ended_is_not_scheduled_again() {
        let guard = guard().await;
        let held = guard.held();
        held.lose(LossReason::Superseded);
        held.schedule();
        let scheduled = held.shared.schedule.stop(LossReason::Shutdown);
        assert!(scheduled.is_empty());
    }
}
