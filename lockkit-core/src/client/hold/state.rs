//! What a hold knows of itself, and the arithmetic of its end.

use std::time::Duration;

use tokio::task::AbortHandle;

use crate::client::outstanding::Outstanding;
use crate::contract::{BackendError, LossReason, Watch};
use crate::time::clock::Moment;
use crate::time::lease::{Lease, window};

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) lease: Lease,
    /// Guards that live.
    pub(super) guards: u32,
    /// A guard was leaked: the lease ends the hold, not the last guard.
    pub(super) leaked: bool,
    /// Until when the store's lease is believed in. INV-2. Only moves forward.
    pub(super) deadline: Moment,
    /// Until when the hold is to stand. Every renewal asks for all of it, and the client itself ends
    /// the hold then. Raised before a renewal that asks for more is written. Only moves forward.
    pub(super) promised: Moment,
    /// The end that `max_hold` sets.
    pub(super) cap: Option<Moment>,
    /// Before this moment the last guard does not end the hold.
    pub(super) least: Option<Moment>,
    /// A shortest hold time that has not begun.
    pub(super) owed: Option<Duration>,
    /// The last guard has gone, and the client releases the lock at this moment.
    pub(super) kept: Option<Moment>,
    /// Counts as unfinished work of the client until the lock stays held without it.
    pub(super) unfinished: Option<Outstanding>,
    /// `None` while a renewal is in flight, and where none is needed.
    pub(super) next_renewal: Option<Moment>,
    /// Why the last renewal failed; `None` once one succeeds.
    pub(super) failure: Option<BackendError>,
    pub(super) watching: Watching,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Held,
    Lost(LossReason),
    Released,
}

pub(super) enum Watching {
    No,
    /// From this moment on; the watch of a ticket that waited is kept until then.
    From(Moment, Option<Box<dyn Watch>>),
    By(AbortHandle),
}

/// What is left to do when a hold has ended.
pub(crate) struct Ending {
    pub(crate) phase: Phase,
    /// Whether the last guard had gone before.
    pub(crate) kept: bool,
    watching: Watching,
    /// Ends after the release was handed over.
    _unfinished: Option<Outstanding>,
}

impl Ending {
    /// Stops the task that watches for the loss.
    pub(crate) fn stop_watching(&self) {
        if let Watching::By(task) = &self.watching {
            task.abort();
        }
    }
}

impl State {
    /// The first moment at which the hold has ended, and why.
    pub(super) fn limit(&self) -> (Moment, LossReason) {
        let lease = self.deadline.min(self.promised);
        match self.cap {
            Some(cap) if cap < lease => (cap, LossReason::MaxHold),
            _ => (lease, LossReason::Expired),
        }
    }

    pub(super) fn next_event(&self) -> Moment {
        let mut event = self.limit().0;
        for other in [self.next_renewal, self.kept].into_iter().flatten() {
            event = event.min(other);
        }
        if let Watching::From(from, _) = self.watching {
            event = event.min(from);
        }
        event
    }

    pub(super) fn end(&mut self, phase: Phase) -> Ending {
        self.phase = phase;
        self.next_renewal = None;
        Ending {
            phase,
            kept: self.kept.is_some(),
            watching: std::mem::replace(&mut self.watching, Watching::No),
            _unfinished: self.unfinished.take(),
        }
    }

    /// Promises another lease from `now` on, if it is renewed for as long as a guard lives.
    pub(super) fn prolong(&mut self, now: Moment) {
        if let Lease::Renewed { ttl } = self.lease
            && self.kept.is_none()
        {
            self.promised = self.promised.max(now + window(ttl));
        }
    }

    /// Whether the store must be asked for more: for another lease, or for what is promised already.
    pub(super) fn needs_renewal(&self) -> bool {
        let renewed = matches!(self.lease, Lease::Renewed { .. }) && self.kept.is_none();
        self.phase == Phase::Held && (renewed || self.deadline < self.promised)
    }

    /// The end of the shortest hold time, if it has not passed.
    pub(super) fn shortest(&self, now: Moment) -> Option<Moment> {
        self.least.filter(|least| now < *least)
    }

    /// What the end of the last guard means: whether the client keeps the lock for some time more.
    pub(super) fn keeps(&mut self, now: Moment) -> bool {
        let mut until = self.shortest(now);
        if self.leaked {
            until = until.max(Some(self.promised));
        }
        let Some(until) = until else { return false };
        let until = self.cap.map_or(until, |cap| cap.min(until));
        self.kept = Some(until);
        self.promised = self.promised.max(until);
        // A lease of the rest is asked for at once, so that the process may end.
        self.next_renewal = self.needs_renewal().then_some(now);
        true
    }
}

impl Phase {
    pub(super) const fn reason(self) -> LossReason {
        match self {
            Self::Lost(reason) => reason,
            Self::Held | Self::Released => LossReason::Superseded,
        }
    }
}
