//! What a hold knows of itself, and the arithmetic of its end.

use std::time::Duration;

use tokio::task::AbortHandle;

use super::Hold;
use crate::backend::Watch;
use crate::capability::TtlOf;
use crate::clock::Moment;
use crate::core::Core;
use crate::error::LossReason;
use crate::lease::window;

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// Guards that live.
    pub(super) guards: u32,
    /// A guard was leaked: the lease ends the hold, not the last guard.
    pub(super) leaked: bool,
    /// Until when the store's lease is believed in. INV-2. Only moves forward.
    pub(super) deadline: Moment,
    /// The end of a fixed lease, which renewals do not move.
    pub(super) fixed_end: Option<Moment>,
    /// The end that `max_hold` sets.
    pub(super) cap: Option<Moment>,
    /// The lease that renewals ask for.
    pub(super) ttl: Duration,
    /// `None` while a renewal is in flight, and for leases that are not renewed.
    pub(super) next_renewal: Option<Moment>,
    pub(super) watching: Watching,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
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

impl std::fmt::Debug for Watching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::No => "No",
            Self::From(..) => "From",
            Self::By(_) => "By",
        })
    }
}

/// What is left to do when a hold has ended.
pub(super) struct Ending {
    pub(super) phase: Phase,
    pub(super) leaked: bool,
    /// The last guard was leaked before.
    pub(super) left: bool,
    pub(super) watching: Watching,
}

impl State {
    /// The first moment at which the hold no longer stands, and why.
    pub(super) fn limit(&self) -> (Moment, LossReason) {
        let lease = self
            .fixed_end
            .map_or(self.deadline, |end| end.min(self.deadline));
        match self.cap {
            Some(cap) if cap < lease => (cap, LossReason::MaxHold),
            _ => (lease, LossReason::Expired),
        }
    }

    pub(super) fn next_event(&self) -> Moment {
        let mut event = self.limit().0;
        if let Some(renewal) = self.next_renewal {
            event = event.min(renewal);
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
            leaked: self.leaked,
            left: self.leaked && self.guards == 0,
            watching: std::mem::replace(&mut self.watching, Watching::No),
        }
    }

    /// The lease that a renewal asks for: all of it, or what is left of a fixed one.
    pub(super) fn renewal_ttl(&self, now: Moment, core: &Core) -> Duration {
        match self.fixed_end {
            Some(end) if core.capabilities.ttl_of == TtlOf::PerHold => {
                let margin = self.ttl.saturating_sub(window(self.ttl));
                (end.since(now) + margin).clamp(core.capabilities.min_ttl.min(self.ttl), self.ttl)
            }
            _ => self.ttl,
        }
    }

    pub(super) fn stop_renewing(&mut self, hold: &Hold) {
        if hold.core.capabilities.ttl_of == TtlOf::PerHold {
            self.next_renewal = None;
        } else if self.fixed_end.is_none() {
            // The session lives on, so the client ends the hold; it keeps it until then, because what
            // is believed of a session may be less than the lease.
            self.fixed_end = Some(hold.core.clock.now() + window(hold.lease.ttl()));
        }
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
