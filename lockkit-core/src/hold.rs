//! One hold, from its grant to its end: the only place that decides whether it still stands.

mod state;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use self::state::{Ending, Phase, State, Watching};
use crate::backend::{Grant, Ticket, Watch};
use crate::capability::TtlOf;
use crate::clock::Moment;
use crate::core::Core;
use crate::error::{Error, LossReason, Result};
use crate::lease::{Lease, first_renewal_due, renewal_due, window};
use crate::mutants::Mutant;
use crate::sync::lock;
use crate::table::Wish;
use crate::token::FencingToken;

/// How old a hold is before its loss is watched for; most holds end sooner.
const WATCH_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) core: Arc<Core>,
    pub(crate) ticket: Ticket,
    pub(crate) token: FencingToken,
    lease: Lease,
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
    /// Other guards, or a leak, keep the hold.
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
        let renewed = matches!(wish.lease, Lease::Renewed { .. });
        let next_renewal = if short {
            Some(first_renewal_due(since, grant.ttl, now))
        } else if renewed || !per_hold {
            Some(renewal_due(since, grant.ttl, core.jitter()).max(now))
        } else {
            None
        };
        let fixed_from = if short { now } else { since };
        let state = State {
            phase: Phase::Held,
            guards: 1,
            leaked: false,
            deadline: since + window(grant.ttl),
            fixed_end: (!renewed).then(|| fixed_from + window(wish.lease.ttl())),
            cap: wish.max_hold.map(|limit| now + limit),
            ttl: if per_hold { ticket.ttl } else { grant.ttl },
            next_renewal,
            watching: if core.capabilities.tells_loss && !core.broken.is(Mutant::LossNotWatched) {
                Watching::From(now + WATCH_AFTER, watch)
            } else {
                Watching::No
            },
        };
        let event = state.next_event();
        let hold = Arc::new(Self {
            core: Arc::clone(core),
            token: grant.token,
            lease: wish.lease,
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
        self.standing().map(|_| ())
    }

    /// How long it stands from now on without another renewal; zero if it is lost.
    pub(crate) fn remaining(self: &Arc<Self>) -> Duration {
        self.standing().unwrap_or_default()
    }

    fn standing(self: &Arc<Self>) -> Result<Duration> {
        let now = self.core.clock.now();
        let mut state = lock(&self.state);
        if state.phase == Phase::Held {
            let (limit, reason) = state.limit();
            if now < limit || self.core.broken.is(Mutant::CheckByFlag) {
                return Ok(limit.since(now));
            }
            let ending = state.end(Phase::Lost(reason));
            drop(state);
            self.settle(ending);
            return Err(self.lost_error(reason));
        }
        Err(self.lost_error(state.phase.reason()))
    }

    fn lost_error(&self, reason: LossReason) -> Error {
        Error::Lost {
            name: self.ticket.name.clone(),
            token: self.token,
            reason,
        }
    }

    /// Waits for the loss; for ever if the hold is released.
    pub(crate) async fn lost(self: Arc<Self>) -> LossReason {
        loop {
            let notified = self.ended.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            match lock(&self.state).phase {
                Phase::Lost(reason) => return reason,
                Phase::Held | Phase::Released => {}
            }
            notified.await;
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
        if let Watching::By(task) = ending.watching {
            task.abort();
        }
        self.core.keeper.remove(self);
        self.core.table.hold_ended(&self.ticket.name, ending.left);
        if let Some(owner) = self.owner {
            self.core.owners.forget(&self.ticket.name, owner, self);
        }
        if let Phase::Lost(reason) = ending.phase {
            self.ended.notify_waiters();
            // At once, whoever still has a guard: a session would keep a key for ever.
            let early = !(ending.leaked && self.core.lease_ends_it());
            if early && !self.core.broken.is(Mutant::LostHoldKeptUntilDrop) {
                self.core.release_later(self.ticket.clone());
            }
            self.core.note_loss(self, reason);
        }
    }

    /// Whether no guard is left that a loss could concern.
    #[cfg(feature = "tracing")]
    pub(crate) fn is_abandoned(&self) -> bool {
        self.guards() == 0
    }

    /// What the end of a guard does where a lost hold was kept until then; nothing, except in a mutant.
    pub(crate) fn release_if_kept(&self) {
        if self.core.broken.is(Mutant::LostHoldKeptUntilDrop) {
            self.core.release_later(self.ticket.clone());
        }
    }

    /// Counts another guard, if the hold stands.
    pub(crate) fn add_guard(self: &Arc<Self>) -> Result<()> {
        self.check()?;
        let mut state = lock(&self.state);
        match state.phase {
            Phase::Held if state.guards > 0 => {
                state.guards += 1;
                Ok(())
            }
            phase => Err(self.lost_error(phase.reason())),
        }
    }

    pub(crate) fn guards(&self) -> u32 {
        lock(&self.state).guards
    }

    /// Takes one guard away; the last one ends the hold.
    ///
    /// # Errors
    /// - [`Error::Lost`] if the hold was lost before.
    pub(crate) fn drop_guard(self: &Arc<Self>) -> Result<Last> {
        let standing = self.check();
        let mut state = lock(&self.state);
        state.guards = state.guards.saturating_sub(1);
        standing?;
        if state.phase != Phase::Held || state.guards > 0 {
            return Ok(Last::No);
        }
        if state.leaked {
            state.stop_renewing(self);
            let event = state.next_event();
            drop(state);
            self.core.table.hold_left();
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

    /// What is due now. Renewals that are due within `slack` are due now, so that they share a request.
    pub(crate) fn due(self: &Arc<Self>, now: Moment, slack: Duration) -> Due {
        let mut state = lock(&self.state);
        if state.phase != Phase::Held {
            return Due::Ended;
        }
        let (limit, reason) = state.limit();
        let blocked = self.core.broken.is(Mutant::RenewalBlocksDeadline)
            && state.next_renewal.is_none()
            && matches!(self.lease, Lease::Renewed { .. });
        if limit <= now && !blocked {
            let ending = state.end(Phase::Lost(reason));
            drop(state);
            self.settle(ending);
            return Due::Ended;
        }
        if matches!(&state.watching, Watching::From(from, _) if *from <= now) {
            let kept = match std::mem::replace(&mut state.watching, Watching::No) {
                Watching::From(_, kept) => kept,
                Watching::No | Watching::By(_) => None,
            };
            return Due::Watch(kept, state.next_event());
        }
        if state
            .next_renewal
            .is_some_and(|due| due <= now + slack.min(state.ttl / 50))
        {
            state.next_renewal = None;
            let ticket = self
                .ticket
                .clone()
                .with_ttl(state.renewal_ttl(now, &self.core));
            return Due::Renew(
                ticket,
                if blocked {
                    now + state.ttl
                } else {
                    state.next_event()
                },
            );
        }
        Due::Later(if blocked {
            now + Duration::from_millis(100)
        } else {
            state.next_event()
        })
    }

    /// The store has started the lease anew: `since` is when the request for that was written.
    pub(crate) fn renewed(self: &Arc<Self>, since: Moment, sent: Moment, ttl: Duration) {
        let now = self.core.clock.now();
        let mut state = lock(&self.state);
        if self.core.broken.is(Mutant::LossNotSticky) && matches!(state.phase, Phase::Lost(_)) {
            state.phase = Phase::Held;
            state.deadline = since + window(ttl);
        }
        // A reply that comes after the old deadline proves nothing about the time between.
        if state.phase != Phase::Held || now >= state.limit().0 {
            return;
        }
        let per_hold = self.core.capabilities.ttl_of == TtlOf::PerHold;
        state.deadline = state.deadline.max(since + window(ttl));
        let on = !state.leaked || state.guards > 0 || !per_hold;
        if on && (matches!(self.lease, Lease::Renewed { .. }) || !per_hold) {
            state.next_renewal = Some(renewal_due(sent, state.ttl, self.core.jitter()));
        }
        let event = state.next_event();
        drop(state);
        self.core.keeper.put(self, event);
    }

    /// A renewal failed for a passing reason: again at `at`, if the hold still stands then.
    pub(crate) fn renew_again(self: &Arc<Self>, at: Moment) {
        if self.core.broken.is(Mutant::RenewalNotRetried) {
            return;
        }
        let per_hold = self.core.capabilities.ttl_of == TtlOf::PerHold;
        let mut state = lock(&self.state);
        if state.phase == Phase::Held && !(per_hold && state.leaked && state.guards == 0) {
            state.next_renewal = Some(at);
            let event = state.next_event();
            drop(state);
            self.core.keeper.put(self, event);
        }
    }

    /// A fixed lease was prolonged by its user.
    pub(crate) fn extended(self: &Arc<Self>, since: Moment, ttl: Duration) -> Result<()> {
        self.check()?;
        let mut state = lock(&self.state);
        let end = if self.core.capabilities.ttl_of == TtlOf::PerHold {
            let end = since + window(ttl);
            state.deadline = state.deadline.max(end);
            end
        } else {
            // The session's lease was not changed; the client alone ends the hold.
            self.core.clock.now().max(since) + window(ttl)
        };
        state.fixed_end = state.fixed_end.map(|old| old.max(end));
        let event = state.next_event();
        drop(state);
        self.core.keeper.put(self, event);
        Ok(())
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

    pub(crate) const fn lease(&self) -> Lease {
        self.lease
    }
}
