//! The handle that steers a [`Faulty`](super::Faulty) store while it runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::script::{End, Fault, Operation, Plan, Reach, Rule, Script};
use crate::contract::{LockName, Outcome, Ticket};
use crate::store::sync::lock;

/// Steers the faults of a [`Faulty`](super::Faulty) store and counts its calls.
///
/// Clones steer the same store. Without a rule nothing fails.
#[derive(Clone, Debug)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    script: Mutex<Script>,
    /// The way to the store.
    reach: watch::Sender<Reach>,
    tally: watch::Sender<Tally>,
    /// Each late request has a receiver, and drops it also when its runtime stops.
    late: watch::Sender<()>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    calls: [u64; Operation::ALL.len()],
    injected: u64,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                script: Mutex::new(Script::new(seed)),
                reach: watch::Sender::default(),
                tally: watch::Sender::default(),
                late: watch::Sender::default(),
            }),
        }
    }

    /// Adds a rule. A call meets all rules in the order in which they were added.
    pub fn inject(&self, rule: Rule) {
        lock(&self.shared.script).rules.push(rule);
    }

    /// Puts a rule in the place of all others, in one step: no call meets neither.
    pub fn replace(&self, rule: Rule) {
        let mut script = lock(&self.shared.script);
        script.clear();
        script.rules.push(rule);
    }

    /// Lets everything go wrong that can, each with this probability in each call: delays, slow and
    /// dropped replies, refused, lost and late requests, lost wake-ups. Times are up to `longest`.
    pub fn chaos(&self, probability: f64, longest: Duration) {
        let (min, max) = (Duration::ZERO, longest);
        let faults = [
            Fault::Delay { min, max },
            Fault::SlowReply { min, max },
            Fault::Fail(Outcome::Unavailable),
            Fault::Fail(Outcome::Indeterminate),
            Fault::DropReply,
            Fault::Late { min, max },
        ];
        for fault in faults {
            self.inject(Rule::new(fault).with_probability(probability));
        }
        self.lose_wakes(probability);
    }

    /// Loses wake-ups of watches with this probability; 1 loses all, 0 none.
    pub fn lose_wakes(&self, probability: f64) {
        lock(&self.shared.script).lost_wakes = probability;
    }

    /// Refuses every call with [`Outcome::Unavailable`], and holds wake-ups back, until
    /// [`heal`](Self::heal).
    pub fn outage(&self) {
        self.shared.reach.send_replace(Reach::Refused);
    }

    /// Answers nothing and carries out nothing, and holds wake-ups back, until
    /// [`heal`](Self::heal); then the calls that still wait go on.
    pub fn black_hole(&self) {
        self.shared.reach.send_replace(Reach::Silent);
    }

    /// Ends every fault: forgets all rules, ends an outage, lets go what hangs. Late requests stay
    /// on their way.
    pub fn heal(&self) {
        lock(&self.shared.script).clear();
        self.shared.reach.send_replace(Reach::Open);
    }

    /// How many calls of this operation were made, whatever became of them.
    #[must_use]
    pub fn calls(&self, operation: Operation) -> u64 {
        self.shared.tally.borrow().calls[operation as usize]
    }

    /// How many calls were made of all operations.
    #[must_use]
    pub fn all_calls(&self) -> u64 {
        self.shared.tally.borrow().calls.iter().sum()
    }

    /// Counts calls and faults from zero again.
    pub fn reset_counts(&self) {
        self.shared.tally.send_replace(Tally::default());
    }

    /// How many times a rule has hit, so that a test can tell that its fault took place.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.shared.tally.borrow().injected
    }

    /// Waits until `n` calls of this operation were made.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn called(&self, operation: Operation, n: u64) {
        self.wait(|tally| tally.calls[operation as usize] >= n)
            .await;
    }

    /// Waits until rules have hit `n` times.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn struck(&self, n: u64) {
        self.wait(|tally| tally.injected >= n).await;
    }

    /// Waits until no late request is on its way.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn settled(&self) {
        self.shared.late.closed().await;
    }

    async fn wait(&self, reached: impl FnMut(&Tally) -> bool) {
        // It ends with an error only when the sender is gone, and `self` has it.
        let _ = self.shared.tally.subscribe().wait_for(reached).await;
    }

    /// Counts a call and decides what becomes of it.
    pub(super) fn plan(&self, operation: Operation, name: Option<&LockName>) -> Plan {
        let mut script = lock(&self.shared.script);
        let plan = script.plan(operation, |only| only.is_none() || only == name);
        self.count(operation, plan.faults);
        self.with_its_heal(plan)
    }

    /// Counts a batch of renewals, and decides what becomes of it as a whole and of each ticket in it.
    pub(super) fn plan_batch(&self, tickets: &[Ticket]) -> (Plan, Vec<Option<End>>) {
        let mut script = lock(&self.shared.script);
        let mut batch = script.plan(Operation::Renew, |only| only.is_none());
        let ends = tickets.iter().map(|ticket| {
            let plan = script.plan(Operation::Renew, |only| only == Some(&ticket.name));
            batch.faults += plan.faults;
            batch.before += plan.before;
            batch.after += plan.after;
            // A ticket that hangs must not keep the others waiting: that is the contract.
            let hung = plan.hang.then_some(End::Fail(Outcome::Indeterminate));
            batch.end.or(hung).or(plan.end)
        });
        let ends = ends.collect();
        self.count(Operation::Renew, batch.faults);
        (self.with_its_heal(batch), ends)
    }

    /// A call that hangs goes on at the first [`heal`](Self::heal) from now on. Under the mutex of the script: one that
    /// has cleared it lets go all calls that have met its rules.
    fn with_its_heal(&self, plan: Plan) -> Plan {
        let reach = plan.hang.then(|| self.shared.reach.subscribe());
        Plan { reach, ..plan }
    }

    fn count(&self, operation: Operation, faults: u64) {
        self.shared.tally.send_modify(|tally| {
            tally.calls[operation as usize] += 1;
            tally.injected += faults;
        });
    }

    pub(super) fn loses_wake(&self) -> bool {
        lock(&self.shared.script).loses_wake()
    }

    /// Waits while no call returns; then says whether calls are let through.
    pub(super) async fn reachable(&self) -> bool {
        let mut reach = self.shared.reach.subscribe();
        let heard = reach.wait_for(|reach| *reach != Reach::Silent).await;
        heard.is_ok_and(|reach| *reach == Reach::Open)
    }

    /// Waits until calls are let through.
    pub(super) async fn open(&self) {
        let mut reach = self.shared.reach.subscribe();
        let _ = reach.wait_for(|reach| *reach == Reach::Open).await;
    }

    /// A late request is on its way for as long as the result lives.
    pub(super) fn late(&self) -> watch::Receiver<()> {
        self.shared.late.subscribe()
    }
}
