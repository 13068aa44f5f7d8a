//! What a hold asks of the store, and what it believes of the answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::state::{Phase, Watching};
use super::{Due, Failure, Hold, Next, State};
use crate::contract::{BackendError, Error, LossReason, Renewal, Ticket, TtlOf};
use crate::store::sync::lock;
use crate::time::backoff::{Backoff, jitter};
use crate::time::clock::Moment;
use crate::time::lease::{Lease, lease_for, renewal_due, window};

/// The longest pause before a renewal that failed is tried again.
const AGAIN: Duration = Duration::from_millis(80);

impl Hold {
    /// What is due now. Renewals that are due within `slack` are due now, so that they share a request.
    pub(crate) fn due(&self, now: Moment, slack: Duration) -> Due {
        let mut state = lock(&self.state);
        if state.phase != Phase::Held {
            return Due::Next(Next::Nothing);
        }
        let (limit, reason) = state.limit();
        let over = state.kept.is_some_and(|until| until <= now);
        if over || limit <= now {
            let phase = if over {
                Phase::Released
            } else {
                Phase::Lost(reason)
            };
            return Due::Next(Next::End(state.end(phase)));
        }
        if matches!(&state.watching, Watching::From(from, _) if *from <= now) {
            let kept = match std::mem::replace(&mut state.watching, Watching::No) {
                Watching::From(_, kept) => kept,
                Watching::No | Watching::By(_) => None,
            };
            return Due::Watch(kept);
        }
        let soon = now + slack.min(self.ticket.ttl / 50);
        if state.next_renewal.is_some_and(|due| due <= soon) {
            state.next_renewal = None;
            return Due::Renew(self.ask(&mut state, now));
        }
        Due::Next(Next::Schedule)
    }

    /// The ticket of a renewal that is written after `now`: it asks for all that is promised.
    fn ask(&self, state: &mut State, now: Moment) -> Ticket {
        state.prolong(now);
        let ticket = self.ticket.clone();
        match self.context.capabilities.ttl_of {
            TtlOf::PerHold => {
                let rest = state.promised.since(now);
                ticket.with_ttl(lease_for(rest, &self.context.capabilities))
            }
            // A session's lease has its own length; there the client alone ends a fixed lease.
            TtlOf::PerSession => ticket,
        }
    }

    /// The ticket of a renewal out of turn, and when it was made.
    pub(crate) fn renewal(&self) -> Result<(Ticket, Moment), Failure> {
        let (mut state, now) = self.held(lock(&self.state))?;
        Ok((self.ask(&mut state, now), now))
    }

    /// Promises a fixed lease of `ttl` from now on: the ticket to ask for it with, and when it was
    /// made. `None` if the hold lasts that long already.
    pub(crate) fn promise(&self, ttl: Duration) -> Result<Option<(Ticket, Moment)>, Failure> {
        let (mut state, now) = self.held(lock(&self.state))?;
        if !matches!(state.lease, Lease::Fixed { .. }) {
            let what =
                "a renewed lease needs no extension: the client prolongs it while a guard lives";
            return Err(Error::invalid(what).into());
        }
        let end = now + window(ttl);
        if end <= state.deadline.min(state.promised) {
            return Ok(None);
        }
        state.promised = state.promised.max(end);
        Ok(Some((self.ask(&mut state, now), now)))
    }

    /// The answer to a renewal that was written at `sent` and asked for a lease of `asked`.
    pub(crate) fn answered(
        &self,
        sent: Moment,
        asked: Duration,
        answer: Result<Renewal, BackendError>,
    ) -> Next {
        match answer {
            Ok(Renewal::Renewed { since, ttl }) => {
                self.suspect.store(false, Ordering::Relaxed);
                let ttl = match self.context.capabilities.ttl_of {
                    TtlOf::PerHold => ttl.min(asked),
                    TtlOf::PerSession => ttl,
                };
                self.renewed(since.unwrap_or(sent), sent, ttl)
            }
            Ok(Renewal::NotHeld) => self.lose(LossReason::Superseded),
            Ok(Renewal::SessionEnded) => self.lose(LossReason::SessionEnded),
            Err(error) => {
                self.failed(error);
                self.renew_again(asked)
            }
        }
    }

    /// The store has set a lease of at least `ttl` at `since`, in answer to a request written at `sent`.
    fn renewed(&self, since: Moment, sent: Moment, ttl: Duration) -> Next {
        let now = self.context.clock.now();
        // Dropped after the mutex: its end may wake a task at once.
        let mut _finished = None;
        let mut state = lock(&self.state);
        // A reply that comes after the old deadline proves nothing about the time between.
        if state.phase != Phase::Held || now >= state.limit().0 {
            return Next::Nothing;
        }
        state.failure = None;
        state.deadline = state.deadline.max(since + window(ttl));
        state.prolong(sent);
        // What the last guard has asked for since then is not deferred.
        let asked = state.next_renewal.take().filter(|_| state.kept.is_some());
        if state.needs_renewal() {
            let due = renewal_due(sent, ttl, jitter());
            state.next_renewal = Some(asked.map_or(due, |asked| asked.min(due)));
        } else if self.context.lease_keeps_hold() {
            _finished = state.unfinished.take();
        }
        Next::Schedule
    }

    /// A renewal that asked for `asked` failed: again after a pause that leaves room for several more
    /// before the deadline.
    pub(crate) fn renew_again(&self, asked: Duration) -> Next {
        let mut state = lock(&self.state);
        if !state.needs_renewal() {
            return Next::Nothing;
        }
        let pause = Backoff::new(AGAIN, AGAIN).pause().min(asked / 20);
        state.next_renewal = Some(self.context.clock.now() + pause);
        Next::Schedule
    }

    /// Why the last renewal failed; `None` once one succeeds.
    pub(crate) fn failure(&self) -> Option<BackendError> {
        lock(&self.state).failure.clone()
    }

    /// Keeps the reason why a renewal failed, for those who learn of the loss. Leaves a trace of the
    /// first failure in a row.
    pub(crate) fn failed(&self, error: BackendError) {
        #[cfg(feature = "tracing")]
        let trace = error.clone();
        let before = lock(&self.state).failure.replace(error);
        #[cfg(feature = "tracing")]
        if before.is_none() {
            let error = trace.with_causes();
            tracing::warn!(lock = %self.name, token = %self.token, %error, "renewal failed");
        }
        drop(before);
    }
}
