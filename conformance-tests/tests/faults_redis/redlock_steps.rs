//! Steps of a Redlock in which requests to one, two and three of five nodes fail: the outcome is that of the step.

use std::sync::Arc;

use conformance_tests::servers::RedisServer;
use conformance_tests::task::{repeated, run_trials, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::contract::{Attempt, DistributedLock as _, LockState, Renewal, Ticket};
use lockkit_core::{BackendError, ClientId, Outcome as Told};
use lockkit_redis::RedlockStore;
use tokio::sync::Barrier;
use tokio::time::sleep;

use crate::redlock::{having_at, store};
use crate::redlock_faults::{Fault, LONGEST, NODES, OOM, World, ticket};
use crate::world::{LONG, TTL};

/// The trials that run at once.
const TOGETHER: usize = 24;

/// One of each class, and then others, which only a majority meets.
const FAULTS: [Fault; 8] = [
    OOM,
    Fault::Refused("-NOPERM this user has no permissions to run the 'evalsha' command\r\n"),
    Fault::Down,
    Fault::Cut,
    Fault::Lost,
    Fault::Refused("-READONLY You can't write against a read only replica.\r\n"),
    Fault::Refused("-LOADING Redis is loading the dataset in memory\r\n"),
    Fault::Silent,
];

/// Those of a second request.
const LATER: [Fault; 3] = [OOM, Fault::Cut, Fault::Lost];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Attempt,
    /// The nodes have accepted larger tokens than the first that is proposed: two rounds.
    AttemptTwice,
    AttemptAgain,
    AttemptBehind,
    /// Three nodes have the lock of another program: two are given up.
    AttemptSplit,
    Renew,
    /// Nodes have lost the hold, and get it again.
    Repair,
    Extend,
    Release,
    ReleaseWaiter,
    Break,
}

const STEPS: [Step; 11] = [
    Step::Attempt,
    Step::AttemptTwice,
    Step::AttemptAgain,
    Step::AttemptBehind,
    Step::AttemptSplit,
    Step::Renew,
    Step::Repair,
    Step::Extend,
    Step::Release,
    Step::ReleaseWaiter,
    Step::Break,
];

/// What a step returns: whether it says that the ticket holds from now on.
type Said = Result<bool, BackendError>;

impl Step {
    const fn is_first_attempt(self) -> bool {
        use Step::{Attempt, AttemptBehind, AttemptSplit, AttemptTwice};
        matches!(self, Attempt | AttemptTwice | AttemptBehind | AttemptSplit)
    }

    const fn asks_twice(self) -> bool {
        matches!(self, Self::AttemptTwice | Self::AttemptSplit | Self::Repair)
    }

    const fn is_behind(self) -> bool {
        matches!(self, Self::AttemptBehind | Self::ReleaseWaiter)
    }

    const fn ends(self) -> bool {
        matches!(self, Self::Release | Self::ReleaseWaiter | Self::Break)
    }

    const fn renews(self) -> bool {
        matches!(self, Self::Renew | Self::Repair | Self::Extend)
    }

    async fn run(self, store: &RedlockStore, ticket: &Ticket) -> Said {
        let longest = ticket.clone().with_ttl(LONG);
        match self {
            Self::Release | Self::ReleaseWaiter => store.release(ticket).await.map(|_| false),
            Self::Break => store.break_lock(&ticket.name).await.map(|_| false),
            _ if self.renews() => {
                let ticket = if self == Self::Extend {
                    &longest
                } else {
                    ticket
                };
                let renewed = store.renew(std::slice::from_ref(ticket)).await.remove(0)?;
                Ok(renewed != Renewal::NotHeld)
            }
            _ => Ok(matches!(store.attempt(ticket).await?, Attempt::Granted(_))),
        }
    }
}

/// One step of which one request to each of some nodes fails.
#[derive(Clone, Copy, Debug)]
struct Trial {
    step: Step,
    fault: Fault,
    nodes: usize,
    at: usize,
}

impl Trial {
    fn all() -> Vec<Self> {
        let mut trials = Vec::new();
        for (step, nodes) in STEPS
            .into_iter()
            .flat_map(|step| NODES.map(|it| (step, it)))
        {
            let faults: &[Fault] = if nodes == 3 { &FAULTS } else { &FAULTS[..5] };
            let later: &[Fault] = if step.asks_twice() { &LATER } else { &[] };
            let first = faults.iter().map(|fault| (*fault, 0));
            let all = first.chain(later.iter().map(|fault| (*fault, 1)));
            trials.extend(all.map(|(fault, at)| Self {
                step,
                fault,
                nodes,
                at,
            }));
        }
        trials
    }

    /// What the step finds.
    async fn prepare(
        self,
        world: &World,
        store: &RedlockStore,
        mine: &Ticket,
        other: &Ticket,
    ) -> Outcome {
        let name = mine.name.as_str();
        match self.step {
            Step::Attempt => {}
            Step::AttemptTwice => {
                let (key, far) = (format!("redisson_lock_token:{{{name}}}"), world.far);
                for node in world.nodes() {
                    node.ask(&["SET", &key, &far.to_string()]).await?;
                }
            }
            Step::AttemptSplit => {
                for node in &world.nodes()[2..] {
                    let words = ["SET", name, "of-another", "PX", "60000"];
                    node.ask(&words).await?;
                }
            }
            Step::AttemptBehind | Step::ReleaseWaiter => {
                hold(&world.sound, other).await?;
            }
            _ => {
                hold(store, mine).await?;
                while having_at(world.nodes(), name).await? < 5 {
                    sleep(TTL / 300).await;
                }
            }
        }
        match self.step {
            Step::ReleaseWaiter => {
                while store.attempt(mine).await.is_err() {
                    sleep(TTL / 50).await;
                }
            }
            Step::Repair => {
                for node in &world.nodes()[..self.nodes.min(2)] {
                    node.ask(&["DEL", name]).await?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Carries out the step while a request fails. Returns its result, and whether one has failed. `together`: the
    /// trials that need the same nodes to be down.
    async fn carry_out(
        self,
        world: &World,
        store: &RedlockStore,
        mine: &Ticket,
        together: &Barrier,
    ) -> (Said, bool) {
        let name = mine.name.as_str();
        if self.fault == Fault::Down {
            if together.wait().await.is_leader() {
                world.set_down(self.nodes, true);
            }
            together.wait().await;
            let said = self.step.run(store, mine).await;
            if together.wait().await.is_leader() {
                world.set_down(self.nodes, false);
            }
            together.wait().await;
            return (said, true);
        }
        world.arm(name, self.fault, self.nodes, Some(self.at));
        let said = self.step.run(store, mine).await;
        (said, world.disarm(name) > 0)
    }

    /// Returns whether a request failed.
    async fn run(self, world: &World, together: &Barrier) -> Outcome<bool> {
        let store = store(world.hosts.clone(), LONG).connect().await?;
        let name = format!("jobs/{:?}/{}", self.step, ClientId::random());
        let enqueue = self.step == Step::ReleaseWaiter;
        let ttl = match (self.step, self.fault) {
            // Nodes that are down keep what is withdrawn meanwhile, for its lease.
            (Step::AttemptAgain, Fault::Down) => TTL,
            _ => LONG / 2,
        };
        let (mine, other) = (
            ticket(&name, 1)?.with_enqueue(enqueue).with_ttl(ttl),
            ticket(&name, 2)?.with_ttl(LONG),
        );
        self.prepare(world, &store, &mine, &other).await?;
        let (said, struck) = self.carry_out(world, &store, &mine, together).await;
        // A renewal without a reply leaves the lease as it was.
        let claims = said.as_ref().map_or(self.step.renews(), |holds| *holds);
        let next = ticket(&name, 3)?.with_enqueue(false);
        if claims {
            let asked = world.sound.attempt(&next).await;
            let two = asked.is_ok_and(|asked| asked != Attempt::held());
            ensure(!two, "two hold the lock")?;
        }
        let known = |error: &BackendError| error.outcome() != Told::Indeterminate;
        if said.as_ref().err().is_none_or(known) {
            self.check(world, &mine, &other, said.is_ok()).await?;
        }
        // The test does not repeat what the step says that it did.
        let first = self.step.is_first_attempt();
        let needs_release = match &said {
            Ok(holds) => !self.step.ends() && (!first || *holds),
            Err(error) => !(known(error) && first),
        };
        if needs_release {
            repeated(LONGEST * 3, || store.release(&mine)).await?;
        }
        let broken = self.step == Step::Break && !needs_release;
        ensure(broken || store.tickets() == 0, "a ticket is kept")?;
        if self.step == Step::AttemptSplit {
            for node in &world.nodes()[2..] {
                node.ask(&["DEL", &name]).await?;
            }
        }
        if self.step.is_behind() {
            repeated(LONGEST * 3, || world.sound.release(&other)).await?;
        }
        let next = ticket(&name, 4)?;
        within(LONGEST * 3, hold(&world.sound, &next)).await??;
        repeated(LONGEST * 3, || world.sound.release(&next)).await?;
        Ok(struck)
    }

    /// The lock is as the step says: the step was `done`, or had no effect.
    async fn check(self, world: &World, mine: &Ticket, other: &Ticket, done: bool) -> Outcome {
        if done && matches!(self.step, Step::Release | Step::Break) {
            let left = having_at(world.nodes(), mine.name.as_str()).await?;
            return ensure(left < 3, format!("{left} nodes have it"));
        }
        let state = loop {
            // Its own connections may have ended, too.
            match world.sound.inspect(&mine.name).await {
                Ok(state) => break state,
                Err(_) => sleep(TTL / 50).await,
            }
        };
        let ids = state.iter().flat_map(LockState::holder_ids);
        let expected = match self.step {
            // The one is of another program. The other gives back what it finds at nodes that reply.
            Step::AttemptSplit => return Ok(()),
            Step::AttemptAgain if !done => return Ok(()),
            step if step.is_behind() => Some(other),
            step if step.is_first_attempt() && !done => None,
            _ => Some(mine),
        };
        let expected = expected.map(|ticket| ticket.holder.to_string());
        let told = format!("done: {done}, and now {state:?}");
        ensure(ids.eq(expected), told)
    }
}

/// Takes a free lock, also on a busy machine.
async fn hold(store: &RedlockStore, ticket: &Ticket) -> Outcome {
    while !matches!(store.attempt(ticket).await, Ok(Attempt::Granted(_))) {
        sleep(TTL / 50).await;
    }
    Ok(())
}

/// Runs trials, some of them at once. Returns how many had a request that failed.
async fn run_all(world: &Arc<World>, trials: Vec<Trial>, at_once: usize) -> Outcome<usize> {
    let together = Arc::new(Barrier::new(trials.len()));
    let run = |trial: Trial| {
        let (world, together) = (Arc::clone(world), Arc::clone(&together));
        async move { trial.run(&world, &together).await }
    };
    run_trials(trials, at_once, run).await
}

pub(crate) async fn step_returns_its_true_outcome_whichever_nodes_fail() -> Outcome {
    let (world, trials) = (World::new().await?, Trial::all());
    let (count, mut struck) = (trials.len(), 0);
    let is_down = |trial: &Trial| trial.fault == Fault::Down;
    let (down, others): (Vec<Trial>, _) = trials.into_iter().partition(is_down);
    struck += run_all(&world, others, TOGETHER).await?;
    for nodes in NODES {
        let same: Vec<Trial> = down
            .iter()
            .filter(|it| it.nodes == nodes)
            .copied()
            .collect();
        struck += run_all(&world, same, STEPS.len()).await?;
    }
    println!("a request failed in {struck} of {count} trials");
    // Some steps are decided before they send a second request.
    ensure(struck >= count * 9 / 10, format!("{struck} of {count}"))?;
    leftover_holds_expire(world.nodes()).await
}

/// A node that has failed may keep a hold, but no longer than for its lease.
async fn leftover_holds_expire(nodes: &[RedisServer]) -> Outcome {
    let longest = i64::try_from(LONG.as_millis())?;
    for node in nodes {
        for key in node.ask(&["KEYS", "jobs/*"]).await? {
            let left: i64 = node.ask(&["PTTL", &key]).await?.concat().parse()?;
            // It may have ended just now.
            let ends = left == -2 || (0..=longest).contains(&left);
            ensure(ends, format!("{key} stays for {left} ms"))?;
        }
    }
    Ok(())
}
