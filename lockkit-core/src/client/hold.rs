//! One hold, from its grant to its end: the only place that decides whether the lock is still held.
//!
//! A hold changes nothing but itself. It returns what follows, and `held.rs` carries that out.

mod renewing;
mod state;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use self::state::{State, Watching};
use crate::client::context::Context;
use crate::contract::{Error, FencingToken, Grant, LockName, LossReason, Ticket, TtlOf, Watch};
use crate::store::sync::lock;
use crate::time::backoff::jitter;
use crate::time::clock::Moment;
use crate::time::lease::{Lease, first_renewal_due, lease_for, renewal_due, window};

pub(crate) use self::state::{Ending, Phase};

/// How old a hold is before its loss is watched for; most holds end sooner.
const WATCH_AFTER: Duration = Duration::from_millis(100);
/// The longest time between two readings of the clock, by the renewal task and by `lost()`: they notice
/// a suspend within this time. INV-1.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Why a hold cannot end with its last guard.
const KEPT: &str = "is kept after its last guard: drop the guard";

/// What a caller wants of the hold that it will get.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HoldOptions {
    pub(crate) lease: Lease,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) owner: Option<u64>,
    /// The longest lease that the hold may have had under another ticket: a store never makes it shorter.
    pub(crate) former: Duration,
}

impl HoldOptions {
    pub(crate) fn with_max_hold(mut self, limit: Duration) -> Result<Self, Error> {
        if limit.is_zero() {
            return Err(Error::invalid(
                "the longest hold time must be more than zero",
            ));
        }
        self.max_hold = Some(limit);
        Ok(self)
    }
}

pub(crate) struct Hold {
    context: Arc<Context>,
    /// That of the lock, without the client's prefix.
    pub(crate) name: LockName,
    pub(crate) ticket: Ticket,
    pub(crate) token: FencingToken,
    pub(crate) owner: Option<u64>,
    /// The longest lease that it may have had at its beginning.
    first: Duration,
    state: Mutex<State>,
    /// Notified when the hold ends for those who had its guards.
    pub(crate) ended: Notify,
    /// Whether a batch with this hold ran into its time limit: it is renewed alone until it succeeds.
    pub(crate) suspect: AtomicBool,
}

/// What follows from a change of a hold.
pub(crate) enum Next {
    Nothing,
    /// Something is due at another moment than before.
    Schedule,
    End(Ending),
}

pub(crate) enum Due {
    /// No request.
    Next(Next),
    /// Renew it, with this ticket. Its deadline is watched meanwhile.
    Renew(Ticket),
    /// Watch for its loss, with the watch that its waiting left.
    Watch(Option<Box<dyn Watch>>),
}

/// What the end of a guard means for the hold.
pub(crate) enum GuardEnd {
    /// Another guard keeps the hold.
    Shared,
    /// The last guard has gone, and the client keeps the lock for some time more.
    Kept,
    /// The hold ends here and its ticket is to be released; the client believed in it until this moment.
    Release(Ending, Moment),
}

/// An error; with what follows, if the hold was found lost just now.
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) ending: Option<Box<Ending>>,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let ending = None;
        Self { error, ending }
    }
}

impl Hold {
    /// A hold that `grant` gives, on a lease that was set at `since`. Its first guard is counted.
    pub(crate) fn new(
        context: &Arc<Context>,
        ticket: Ticket,
        grant: Grant,
        since: Moment,
        options: HoldOptions,
        watch: Option<Box<dyn Watch>>,
    ) -> Self {
        let now = context.clock.now();
        let per_hold = context.capabilities.ttl_of == TtlOf::PerHold;
        // A grant that was pushed has a short lease, which the first renewal makes a full one.
        let short = per_hold && grant.ttl < ticket.ttl;
        let from = if per_hold && !short { since } else { now };
        let watches = context.capabilities.tells_loss;
        let mut state = State {
            phase: Phase::Held,
            lease: options.lease,
            guards: 1,
            leaked: false,
            deadline: since + window(grant.ttl),
            promised: from + window(options.lease.ttl()),
            cap: options.max_hold.map(|limit| now + limit),
            least: None,
            owed: options.min_hold,
            kept: None,
            unfinished: None,
            next_renewal: None,
            failure: None,
            watching: if watches {
                Watching::From(now + WATCH_AFTER, watch)
            } else {
                Watching::No
            },
        };
        if state.needs_renewal() {
            state.next_renewal = Some(if short {
                first_renewal_due(since, grant.ttl, now)
            } else {
                renewal_due(since, grant.ttl, jitter()).max(now)
            });
        }
        Self {
            context: Arc::clone(context),
            name: context.shown(&ticket.name),
            token: grant.token,
            owner: options.owner,
            first: ticket.ttl.max(options.former),
            state: Mutex::new(state),
            ended: Notify::new(),
            suspect: AtomicBool::new(false),
            // It was for the attempt alone.
            ticket: ticket.with_work(None),
        }
    }

    /// When something is due next.
    pub(crate) fn next_event(&self) -> Moment {
        lock(&self.state).next_event()
    }

    /// Whether the lock is held, by the clock and not by a flag: a process that was stopped learns
    /// of its loss before its timers do.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.held(lock(&self.state)).map(drop)
    }

    /// How long the hold lasts from now on without another renewal.
    pub(crate) fn remaining(&self) -> Result<Duration, Failure> {
        let (state, now) = self.held(lock(&self.state))?;
        Ok(state.limit().0.since(now))
    }

    /// What ends the hold if nothing is renewed any more.
    pub(crate) fn next_loss(&self) -> LossReason {
        lock(&self.state).limit().1
    }

    /// The state of a hold that has not ended, and the present moment; ends one whose time is over.
    fn held<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<(MutexGuard<'a, State>, Moment), Failure> {
        let now = self.context.clock.now();
        let (limit, reason) = state.limit();
        let held = state.phase == Phase::Held;
        if held && now < limit {
            return Ok((state, now));
        }
        let reason = if held { reason } else { state.phase.reason() };
        Err(Failure {
            error: self.lost_error(reason, &state),
            ending: held.then(|| Box::new(state.end(Phase::Lost(reason)))),
        })
    }

    fn lost_error(&self, reason: LossReason, state: &State) -> Error {
        let expired = reason == LossReason::Expired;
        Error::Lost {
            name: self.name.clone(),
            token: self.token,
            reason,
            source: state.failure.clone().filter(|_| expired),
        }
    }

    /// What the hold is to those who had its guards.
    pub(crate) fn phase(&self) -> Phase {
        let state = lock(&self.state);
        match state.kept {
            Some(_) => Phase::Released,
            None => state.phase,
        }
    }

    /// Whether it has ended for the client too.
    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.state).phase != Phase::Held
    }

    /// The hold is gone. Sticky: the first reason stays, and nothing brings the hold back.
    pub(crate) fn lose(&self, reason: LossReason) -> Next {
        let mut state = lock(&self.state);
        match state.phase {
            Phase::Held => Next::End(state.end(Phase::Lost(reason))),
            Phase::Lost(_) | Phase::Released => Next::Nothing,
        }
    }

    /// The ticket with the longest lease that the store may have set for it: so long its release is
    /// worth repeating.
    pub(crate) fn to_release(&self) -> Ticket {
        let rest = lock(&self.state).promised.since(self.context.clock.now());
        let ttl = lease_for(rest, &self.context.capabilities).max(self.first);
        self.ticket.clone().with_ttl(ttl)
    }

    /// Counts another guard, if the lock is held.
    pub(crate) fn add_guard(&self) -> Result<(), Failure> {
        let (mut state, _) = self.held(lock(&self.state))?;
        if state.guards == 0 {
            return Err(self.lost_error(state.phase.reason(), &state).into());
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
    /// - [`Failure`] if the hold was lost before.
    pub(crate) fn drop_guard(&self) -> Result<GuardEnd, Failure> {
        let mut state = lock(&self.state);
        state.guards = state.guards.saturating_sub(1);
        let (mut state, now) = self.held(state)?;
        if state.guards > 0 {
            return Ok(GuardEnd::Shared);
        }
        if state.keeps(now) {
            let owes = !state.leaked || state.shortest(now).is_some();
            if owes && (state.needs_renewal() || !self.context.lease_keeps_hold()) {
                state.unfinished = Some(self.context.pending.begin());
            }
            return Ok(GuardEnd::Kept);
        }
        let until = state.limit().0;
        Ok(GuardEnd::Release(state.end(Phase::Released), until))
    }

    /// Ends the hold for this client and leaves it at the store: for another ticket to adopt, or for the caller, who
    /// `releases` its ticket. Also returns until when the client believed in it.
    ///
    /// # Errors
    /// - [`Failure`] if the hold was lost before, has other guards, was leaked, or must be kept for longer and the caller
    ///   `releases`.
    pub(crate) fn leave(&self, releases: bool) -> Result<(Ending, Moment), Failure> {
        let (mut state, now) = self.held(lock(&self.state))?;
        if state.guards > 1 {
            return Err(self.refused("has other guards: release them first"));
        }
        if state.leaked || releases && state.shortest(now).is_some() {
            return Err(self.refused(KEPT));
        }
        state.guards = 0;
        let until = state.limit().0;
        Ok((state.end(Phase::Released), until))
    }

    fn refused(&self, why: &str) -> Failure {
        Error::invalid(format!("the hold of lock `{}` {why}", self.name)).into()
    }

    /// Begins the shortest hold time, for which it is kept also without a guard. Only now: a grant that is not handed
    /// out is released at once. Another guard of the hold begins nothing anew.
    pub(crate) fn keep_owed(&self) {
        let owed = lock(&self.state).owed.take();
        if let Some(owed) = owed {
            self.keep_for(owed);
        }
    }

    /// Begins a shortest hold time now.
    pub(crate) fn keep_for(&self, least: Duration) {
        let until = self.context.clock.now() + least;
        let mut state = lock(&self.state);
        state.least = state.least.max(Some(until));
    }

    /// The options with which it goes on as another hold, with the rest of its times.
    pub(crate) fn passed_on(&self) -> HoldOptions {
        let former = self.to_release().ttl;
        let state = lock(&self.state);
        let now = self.context.clock.now();
        let lease = match state.lease {
            // An extension goes with it.
            Lease::Fixed { ttl } => {
                let rest = lease_for(state.promised.since(now), &self.context.capabilities);
                Lease::fixed(rest.max(ttl))
            }
            renewed @ Lease::Renewed { .. } => renewed,
        };
        HoldOptions {
            lease,
            max_hold: state.cap.map(|cap| cap.since(now)),
            min_hold: state.shortest(now).map(|least| least.since(now)),
            owner: self.owner,
            former,
        }
    }

    /// From now on the lease ends the hold and not the last guard, after which it is not renewed.
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
}
