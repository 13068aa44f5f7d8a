//! One hold, from its grant to its end: the only place that decides whether it still stands.

mod renewing;
mod state;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use self::state::{Ending, Phase, State, Watching};
use crate::client::queue::Wish;
use crate::client::shared::Core;
use crate::contract::capability::TtlOf;
use crate::contract::error::{Error, LossReason, Result};
use crate::contract::token::FencingToken;
use crate::contract::{Grant, Ticket, Watch};
use crate::mutants::Mutant;
use crate::sync::lock;
use crate::time::clock::Moment;
use crate::time::lease::{first_renewal_due, lease_for, renewal_due, window};

/// How old a hold is before its loss is watched for; most holds end sooner.
const WATCH_AFTER: Duration = Duration::from_millis(100);
/// The longest time between two looks at the clock, of the keeper and of `lost()`: after a suspend it is
/// read within this time. INV-1.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) core: Arc<Core>,
    pub(crate) ticket: Ticket,
    pub(crate) token: FencingToken,
    owner: Option<u64>,
    state: Mutex<State>,
    ended: Notify,
    /// The key under which the keeper has it; belongs to the keeper.
    pub(crate) due: AtomicU64,
    /// Whether a batch with this hold ran into its time limit: it is renewed alone until it succeeds.
    pub(crate) suspect: AtomicBool,
}

/// What the keeper has to do for a hold.
pub(crate) enum Due {
    /// Nothing any more.
    Ended,
    /// Nothing before this moment.
    Later(Moment),
    /// Renew it, with this ticket; its deadline is looked at independently.
    Renew(Ticket, Moment),
    /// Watch for its loss, with the watch that its waiting left.
    Watch(Option<Box<dyn Watch>>, Moment),
}

/// What a guard's end means for the hold.
pub(crate) enum Last {
    /// Something else keeps the hold: another guard, a leak, its shortest hold time.
    No,
    /// The hold ends here and its ticket is to be released; until this moment it was believed in.
    Release(Moment),
}

impl Hold {
    /// A hold that `grant` gives, on a lease that was set at `since`. Its first guard is counted.
    pub(crate) fn new(
        core: &Arc<Core>,
        ticket: Ticket,
        grant: Grant,
        since: Moment,
        wish: Wish,
        watch: Option<Box<dyn Watch>>,
    ) -> Arc<Self> {
        let now = core.clock.now();
        let per_hold = core.capabilities.ttl_of == TtlOf::PerHold;
        // A grant that was pushed has a short lease, which the first renewal makes a full one.
        let short = per_hold && grant.ttl < ticket.ttl;
        let from = if per_hold && !short { since } else { now };
        let mut state = State {
            phase: Phase::Held,
            lease: wish.lease,
            guards: 1,
            leaked: false,
            deadline: since + window(grant.ttl),
            promised: from + window(wish.lease.ttl()),
            cap: wish.max_hold.map(|limit| now + limit),
            least: wish.min_hold.map(|least| now + least),
            kept: None,
            unfinished: None,
            next_renewal: None,
            failure: None,
            watching: if core.capabilities.tells_loss && !core.broken.is(Mutant::LossNotWatched) {
                Watching::From(now + WATCH_AFTER, watch)
            } else {
                Watching::No
            },
        };
        if state.needs_renewal() {
            state.next_renewal = Some(if short {
                first_renewal_due(since, grant.ttl, now)
            } else {
                renewal_due(since, grant.ttl, core.jitter()).max(now)
            });
        }
        let event = state.next_event();
        let hold = Arc::new(Self {
            core: Arc::clone(core),
            token: grant.token,
            owner: wish.owner,
            state: Mutex::new(state),
            ended: Notify::new(),
            due: AtomicU64::new(0),
            suspect: AtomicBool::new(false),
            ticket,
        });
        core.keeper.put(&hold, event);
        hold
    }

    /// Whether the hold stands, by the clock and not by a flag: a process that was stopped learns
    /// of its loss before its timers do.
    pub(crate) fn check(self: &Arc<Self>) -> Result<()> {
        self.standing(lock(&self.state)).map(drop)
    }

    /// How long it stands from now on without another renewal; zero if it is lost.
    pub(crate) fn remaining(self: &Arc<Self>) -> Duration {
        let state = self.standing(lock(&self.state));
        state.map_or(Duration::ZERO, |(state, now)| state.limit().0.since(now))
    }

    /// The state of a hold that stands, and the present moment; ends one that does not.
    fn standing<'a>(
        self: &Arc<Self>,
        mut state: MutexGuard<'a, State>,
    ) -> Result<(MutexGuard<'a, State>, Moment)> {
        let now = self.core.clock.now();
        let reason = match state.phase {
            Phase::Held => {
                let (limit, reason) = state.limit();
                if now < limit || self.core.broken.is(Mutant::CheckByFlag) {
                    return Ok((state, now));
                }
                reason
            }
            phase => return Err(self.lost_error(phase.reason(), &state)),
        };
        let error = self.lost_error(reason, &state);
        let ending = state.end(Phase::Lost(reason));
        drop(state);
        self.settle(ending);
        Err(error)
    }

    fn lost_error(&self, reason: LossReason, state: &State) -> Error {
        let expired = reason == LossReason::Expired;
        Error::Lost {
            name: self.ticket.name.clone(),
            token: self.token,
            reason,
            source: state.failure.clone().filter(|_| expired),
        }
    }

    /// Waits for the loss; for ever if the hold is released, and then without keeping the client.
    ///
    /// It reads the clock itself, on the runtime of whoever waits: that of the client may stand still.
    pub(crate) async fn lost(self: Arc<Self>) -> LossReason {
        loop {
            let notified = self.ended.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            let left = self.remaining();
            match self.phase() {
                Phase::Held => {}
                Phase::Lost(reason) => return reason,
                Phase::Released => break,
            }
            if Handle::try_current().is_ok() {
                let sleep = left.clamp(Duration::from_millis(1), LONGEST_SLEEP);
                // Whichever comes first, the next round tells.
                let _ = timeout(sleep, notified).await;
            } else {
                notified.await;
            }
        }
        drop(self);
        std::future::pending().await
    }

    /// Where the hold stands for those who had its guards.
    fn phase(&self) -> Phase {
        let state = lock(&self.state);
        match state.kept {
            Some(_) => Phase::Released,
            None => state.phase,
        }
    }

    /// The hold is gone. Sticky: the first reason stays, and nothing brings the hold back.
    pub(crate) fn lose(self: &Arc<Self>, reason: LossReason) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Held {
            let ending = state.end(Phase::Lost(reason));
            drop(state);
            self.settle(ending);
        }
    }

    /// Does what follows from the end of the hold, once.
    fn settle(self: &Arc<Self>, ending: Ending) {
        if let Watching::By(task) = &ending.watching {
            task.abort();
        }
        self.core.keeper.remove(self);
        if !ending.kept {
            self.core.table.hold_ended(&self.ticket.name);
        }
        if let Some(owner) = self.owner {
            self.core.owners.forget(&self.ticket.name, owner, self);
        }
        self.ended.notify_waiters();
        match ending.phase {
            Phase::Lost(reason) => {
                // At once, whoever still has a guard: a session would keep a key for ever.
                let early = !(ending.kept && self.core.lease_ends_it());
                if early && !self.core.broken.is(Mutant::LostHoldKeptUntilDrop) {
                    self.core.release_later(self.to_release());
                }
                self.core.note_loss(self, reason);
            }
            Phase::Released if ending.kept => self.core.release_later(self.to_release()),
            Phase::Released | Phase::Held => {}
        }
        // Only now, so that `drain` sees the release before it sees the end of this.
        drop(ending.unfinished);
    }

    /// The ticket with the longest lease that the store may have set for it: so long its release is
    /// worth repeating.
    pub(crate) fn to_release(&self) -> Ticket {
        let now = self.core.clock.now();
        let rest = lease_for(
            lock(&self.state).promised.since(now),
            &self.core.capabilities,
        );
        let ttl = rest.max(self.ticket.ttl);
        self.ticket.clone().with_ttl(ttl)
    }

    /// Whether no guard is left that a loss could concern.
    #[cfg(feature = "tracing")]
    pub(crate) fn is_abandoned(&self) -> bool {
        self.guards() == 0
    }

    /// What the end of a guard does where a lost hold was kept until then; nothing, except in a mutant.
    pub(crate) fn release_if_kept(&self) {
        if self.core.broken.is(Mutant::LostHoldKeptUntilDrop) {
            self.core.release_later(self.to_release());
        }
    }

    /// Counts another guard, if the hold stands.
    pub(crate) fn add_guard(self: &Arc<Self>) -> Result<()> {
        let (mut state, _) = self.standing(lock(&self.state))?;
        if state.guards == 0 {
            return Err(self.lost_error(state.phase.reason(), &state));
        }
        state.guards += 1;
        Ok(())
    }

    pub(crate) fn guards(&self) -> u32 {
        lock(&self.state).guards
    }

    /// Takes one guard away; the last one ends the hold.
    ///
    /// # Errors
    /// - [`Error::Lost`] if the hold was lost before.
    pub(crate) fn drop_guard(self: &Arc<Self>) -> Result<Last> {
        let mut state = lock(&self.state);
        state.guards = state.guards.saturating_sub(1);
        let (mut state, now) = self.standing(state)?;
        if state.guards > 0 {
            return Ok(Last::No);
        }
        if state.keeps(now) {
            if !state.leaked && (state.needs_renewal() || !self.core.lease_ends_it()) {
                state.unfinished = Some(self.core.reaper.outstanding());
            }
            let event = state.next_event();
            drop(state);
            self.core.table.hold_ended(&self.ticket.name);
            self.ended.notify_waiters();
            self.core.keeper.put(self, event);
            return Ok(Last::No);
        }
        let until = state.limit().0;
        let ending = state.end(Phase::Released);
        drop(state);
        // Before the release is sent, so that no renewal of a hold that has ended goes out.
        self.settle(ending);
        Ok(Last::Release(until))
    }

    /// From now on the lease ends the hold and not the last guard, after which nobody renews it.
    pub(crate) fn leak(&self) {
        lock(&self.state).leaked = true;
    }

    /// A task watches for the loss; it is stopped when the hold ends.
    pub(crate) fn watched_by(&self, task: AbortHandle) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Held {
            state.watching = Watching::By(task);
        } else {
            task.abort();
        }
    }

    /// Whether it ended: what the keeper has of it is to be forgotten.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).phase != Phase::Held
    }
}
