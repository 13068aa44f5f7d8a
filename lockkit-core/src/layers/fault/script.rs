//! Which fault hits which call: decided before the call begins, from the seed.

use std::time::Duration;

use fastrand::Rng;
use tokio::sync::watch;

use crate::contract::{LockName, Outcome};

/// A call of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// [`attempt`](crate::contract::DistributedLock::attempt)
    Attempt,
    /// [`watch`](crate::contract::DistributedLock::watch)
    Watch,
    /// [`renew`](crate::contract::DistributedLock::renew), one batch
    Renew,
    /// [`release`](crate::contract::DistributedLock::release)
    Release,
    /// [`inspect`](crate::contract::DistributedLock::inspect)
    Inspect,
    /// [`break_lock`](crate::contract::DistributedLock::break_lock)
    BreakLock,
    /// [`list`](crate::contract::DistributedLock::list)
    List,
    /// [`note`](crate::contract::DistributedLock::note)
    Note,
    /// [`adopt`](crate::contract::DistributedLock::adopt)
    Adopt,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Attempt,
        Self::Watch,
        Self::Renew,
        Self::Release,
        Self::Inspect,
        Self::BreakLock,
        Self::List,
        Self::Note,
        Self::Adopt,
    ];

    /// The name of the method.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Attempt => "attempt",
            Self::Watch => "watch",
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Inspect => "inspect",
            Self::BreakLock => "break_lock",
            Self::List => "list",
            Self::Note => "note",
            Self::Adopt => "adopt",
        }
    }
}

/// What can happen to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request takes its time on the way to the store.
    Delay {
        /// At least so long.
        min: Duration,
        /// At most so long.
        max: Duration,
    },
    /// The store carries it out at once, and the reply takes its time.
    SlowReply {
        /// At least so long.
        min: Duration,
        /// At most so long.
        max: Duration,
    },
    /// Nothing happens and no call returns until [`Faults::heal`](super::Faults::heal); then the
    /// request goes on.
    Hang,
    /// It fails with this outcome and without an effect.
    Fail(Outcome),
    /// The store carries it out, and the caller gets [`Outcome::Indeterminate`].
    DropReply,
    /// The caller gets [`Outcome::Indeterminate`] at once, and the store carries it out later.
    Late {
        /// At least so long after.
        min: Duration,
        /// At most so long after.
        max: Duration,
    },
}

/// Says which calls a fault hits: all of them, unless it is narrowed down.
///
/// # Examples
/// ```
/// use lockkit_core::layers::{Fault, Operation, Rule};
///
/// // The replies to the next two attempts get lost.
/// let rule = Rule::new(Fault::DropReply).on(Operation::Attempt).times(2);
/// # let _ = rule;
/// ```
#[derive(Clone, Debug)]
pub struct Rule {
    fault: Fault,
    operation: Option<Operation>,
    name: Option<LockName>,
    probability: f64,
    left: Option<u32>,
}

impl Rule {
    /// Hits every call.
    #[must_use]
    pub const fn new(fault: Fault) -> Self {
        Self {
            fault,
            operation: None,
            name: None,
            probability: 1.0,
            left: None,
        }
    }

    /// Hits calls of one operation only.
    #[must_use]
    pub const fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Hits calls for one lock only; in a batch of renewals its tickets only.
    #[must_use]
    pub fn for_name(mut self, name: LockName) -> Self {
        self.name = Some(name);
        self
    }

    /// Hits a call with this probability.
    #[must_use]
    pub const fn with_probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Hits this number of calls and ends.
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.left = Some(times);
        self
    }
}

/// Which calls come to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reach {
    #[default]
    Open,
    /// Every call is refused.
    Refused,
    /// No call returns.
    Silent,
}

/// How a call ends that does not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Fail(Outcome),
    DropReply,
    Late(Duration),
}

/// What happens to one call.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) before: Duration,
    pub(super) hang: bool,
    /// Tells a call that hangs of the end of that.
    pub(super) reach: Option<watch::Receiver<Reach>>,
    pub(super) end: Option<End>,
    pub(super) after: Duration,
    /// How many rules it met.
    pub(super) faults: u64,
}

#[derive(Debug)]
pub(super) struct Script {
    rng: Rng,
    pub(super) rules: Vec<Rule>,
    /// With which probability a wake-up is lost.
    pub(super) lost_wakes: f64,
}

impl Script {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: Rng::with_seed(seed),
            rules: Vec::new(),
            lost_wakes: 0.0,
        }
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
        self.lost_wakes = 0.0;
    }

    pub(super) fn loses_wake(&mut self) -> bool {
        hits(&mut self.rng, self.lost_wakes)
    }

    /// The plan for a call, from the rules for those names that `concerns` it; delays of several rules add
    /// up, of two ends the first counts.
    pub(super) fn plan(
        &mut self,
        operation: Operation,
        concerns: impl Fn(Option<&LockName>) -> bool,
    ) -> Plan {
        let Self { rng, rules, .. } = self;
        let mut plan = Plan::default();
        rules.retain_mut(|rule| {
            let concerned = rule.operation.is_none_or(|only| only == operation)
                && rule.left != Some(0)
                && concerns(rule.name.as_ref());
            if concerned && hits(rng, rule.probability) {
                rule.left = rule.left.map(|left| left - 1);
                plan.apply(rule.fault, rng);
            }
            rule.left != Some(0)
        });
        plan
    }
}

impl Plan {
    fn apply(&mut self, fault: Fault, rng: &mut Rng) {
        self.faults += 1;
        let end = match fault {
            Fault::Delay { min, max } => {
                self.before += between(rng, min, max);
                return;
            }
            Fault::SlowReply { min, max } => {
                self.after += between(rng, min, max);
                return;
            }
            Fault::Hang => {
                self.hang = true;
                return;
            }
            Fault::Fail(outcome) => End::Fail(outcome),
            Fault::DropReply => End::DropReply,
            Fault::Late { min, max } => End::Late(between(rng, min, max)),
        };
        self.end.get_or_insert(end);
    }
}

/// Draws only where there is a choice, so that a certain fault does not move the others.
fn hits(rng: &mut Rng, probability: f64) -> bool {
    probability >= 1.0 || (probability > 0.0 && rng.f64() < probability)
}

fn between(rng: &mut Rng, min: Duration, max: Duration) -> Duration {
    if max <= min {
        return min;
    }
    min + (max - min).mul_f64(rng.f64())
}
