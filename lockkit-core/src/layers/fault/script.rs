//! Which fault hits which call: decided before the call begins, from the seed.

use std::time::Duration;

use crate::contract::error::Outcome;
use crate::contract::name::LockName;

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
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Attempt,
        Self::Watch,
        Self::Renew,
        Self::Release,
        Self::Inspect,
        Self::BreakLock,
        Self::List,
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
    /// Nothing happens and nothing is answered until [`Faults::heal`](super::Faults::heal); then the
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

/// How a call ends that does not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Fail(Outcome),
    DropReply,
    Late(Duration),
}

/// What happens to one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) before: Duration,
    pub(super) hang: bool,
    pub(super) end: Option<End>,
    pub(super) after: Duration,
    /// How many rules it met.
    pub(super) faults: u64,
}

#[derive(Debug)]
pub(super) struct Script {
    rng: fastrand::Rng,
    rules: Vec<Rule>,
    /// With which probability a wake-up is lost.
    pub(super) lost_wakes: f64,
}

impl Script {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            rules: Vec::new(),
            lost_wakes: 0.0,
        }
    }

    pub(super) fn add(&mut self, rule: Rule) {
        self.rules.push(rule);
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
        self.lost_wakes = 0.0;
    }

    pub(super) fn loses_wake(&mut self) -> bool {
        let probability = self.lost_wakes;
        self.hits(probability)
    }

    /// The plan for a call; delays of several rules add up, of two ends the first counts.
    pub(super) fn plan(&mut self, operation: Operation, name: Option<&LockName>) -> Plan {
        self.plan_where(operation, |rule| {
            rule.name.is_none() || rule.name.as_ref() == name
        })
    }

    /// The plan for a ticket in a batch of renewals, beside that of the batch.
    pub(super) fn plan_renewal(&mut self, name: &LockName) -> Plan {
        self.plan_where(Operation::Renew, |rule| rule.name.as_ref() == Some(name))
    }

    fn plan_where(&mut self, operation: Operation, matches: impl Fn(&Rule) -> bool) -> Plan {
        let mut plan = Plan::default();
        for i in 0..self.rules.len() {
            let rule = &self.rules[i];
            let concerned = rule.operation.is_none_or(|only| only == operation)
                && rule.left != Some(0)
                && matches(rule);
            let (fault, probability) = (rule.fault, rule.probability);
            if concerned && self.hits(probability) {
                if let Some(left) = &mut self.rules[i].left {
                    *left -= 1;
                }
                self.apply(fault, &mut plan);
            }
        }
        self.rules.retain(|rule| rule.left != Some(0));
        plan
    }

    fn apply(&mut self, fault: Fault, plan: &mut Plan) {
        plan.faults += 1;
        let end = match fault {
            Fault::Delay { min, max } => {
                plan.before += self.between(min, max);
                return;
            }
            Fault::SlowReply { min, max } => {
                plan.after += self.between(min, max);
                return;
            }
            Fault::Hang => {
                plan.hang = true;
                return;
            }
            Fault::Fail(outcome) => End::Fail(outcome),
            Fault::DropReply => End::DropReply,
            Fault::Late { min, max } => End::Late(self.between(min, max)),
        };
        plan.end.get_or_insert(end);
    }

    /// Draws only where there is a choice, so that a certain fault does not move the others.
    fn hits(&mut self, probability: f64) -> bool {
        probability >= 1.0 || (probability > 0.0 && self.rng.f64() < probability)
    }

    fn between(&mut self, min: Duration, max: Duration) -> Duration {
        if max <= min {
            return min;
        }
        min + (max - min).mul_f64(self.rng.f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    #[test]
    fn a_rule_hits_what_it_names_and_as_often() {
        let mut script = Script::new(1);
        let rule = Rule::new(Fault::DropReply).on(Operation::Attempt);
        script.add(rule.for_name(name("a")).times(2));
        let (a, b) = (name("a"), name("b"));
        assert_eq!(script.plan(Operation::Attempt, Some(&b)), Plan::default());
        assert_eq!(script.plan(Operation::Release, Some(&a)), Plan::default());
        assert_eq!(script.plan(Operation::List, None), Plan::default());
        let ends: Vec<_> = (0..3)
            .map(|_| script.plan(Operation::Attempt, Some(&a)).end)
            .collect();
        assert_eq!(ends, [Some(End::DropReply), Some(End::DropReply), None]);
        assert!(script.rules.is_empty());
    }

    #[test]
    fn delays_add_up_and_the_first_end_counts() {
        let mut script = Script::new(1);
        let second = Duration::from_secs(1);
        let delay = Fault::Delay {
            min: second,
            max: second,
        };
        for fault in [
            delay,
            Fault::Fail(Outcome::Rejected),
            delay,
            Fault::DropReply,
        ] {
            script.add(Rule::new(fault));
        }
        let plan = script.plan(Operation::List, None);
        assert_eq!(plan.before, 2 * second);
        assert_eq!(plan.end, Some(End::Fail(Outcome::Rejected)));
        assert_eq!(plan.faults, 4);
    }

    #[test]
    fn the_same_seed_makes_the_same_faults() {
        let run = |seed| {
            let mut script = Script::new(seed);
            script.add(Rule::new(Fault::DropReply).with_probability(0.3));
            let late = Fault::Late {
                min: Duration::ZERO,
                max: Duration::from_secs(1),
            };
            script.add(Rule::new(late).with_probability(0.3));
            let plans: Vec<_> = (0..200)
                .map(|_| script.plan(Operation::Attempt, None))
                .collect();
            plans
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let hit = run(7).iter().filter(|plan| plan.end.is_some()).count();
        assert!((60..140).contains(&hit), "{hit} of 200");
    }
}
