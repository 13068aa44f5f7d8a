//! Steps of a Redlock in which requests to one, two and three of five nodes fail: the outcome is that of the step.

use std::sync::Arc;

use conformance_tests::servers::RedisServer;
use conformance_tests::steps::Call::{Attempt, Break, Release, Renew};
use conformance_tests::steps::{Answer, Scene, Step, Stores, WRITER, step};
use conformance_tests::task::{run_trials, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::ClientId;
use lockkit_redis::RedlockStore;
use tokio::sync::Barrier;
use tokio::time::sleep;

use crate::redlock::{having_at, store};
use crate::redlock_faults::{Fault, LONGEST, NODES, OOM, World};
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

/// The nodes have accepted larger tokens than the first that is proposed: two rounds.
const TWICE: Step = step("AttemptTwice", Attempt).once();
const AGAIN: Step = step("AttemptAgain", Attempt).once().known(true);
/// Three nodes have the lock of another program: two are given up.
const SPLIT: Step = step("AttemptSplit", Attempt).once().foreign();
const RENEW: Step = step("Renew", Renew).once();
/// Nodes have lost the hold, and get it again.
const REPAIR: Step = step("Repair", Renew).once();
const EXTEND: Step = step("Extend", Renew).once();
const RELEASE: Step = step("Release", Release).once();
const BREAK: Step = step("Break", Break).once();

const STEPS: [Step; 11] = [
    step("Attempt", Attempt).once(),
    TWICE,
    AGAIN,
    step("AttemptBehind", Attempt).once().behind(WRITER),
    SPLIT,
    RENEW,
    REPAIR,
    EXTEND,
    RELEASE,
    step("ReleaseWaiter", Release).behind(WRITER),
    BREAK,
];

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
            let asks_twice = [TWICE, SPLIT, REPAIR].contains(&step);
            let later: &[Fault] = if asks_twice { &LATER } else { &[] };
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

    /// What the nodes have beside the tickets.
    async fn prepare(self, world: &World, scene: &Scene) -> Outcome {
        let name = scene.mine.name.as_str();
        match self.step {
            TWICE => {
                let (key, far) = (format!("redisson_lock_token:{{{name}}}"), world.far);
                for node in world.nodes() {
                    node.ask(&["SET", &key, &far.to_string()]).await?;
                }
            }
            SPLIT => {
                for node in &world.nodes()[2..] {
                    let words = ["SET", name, "of-another", "PX", "60000"];
                    node.ask(&words).await?;
                }
            }
            AGAIN | RENEW | REPAIR | EXTEND | RELEASE | BREAK => {
                while having_at(world.nodes(), name).await? < 5 {
                    sleep(TTL / 300).await;
                }
            }
            _ => {}
        }
        if self.step == REPAIR {
            for node in &world.nodes()[..self.nodes.min(2)] {
                node.ask(&["DEL", name]).await?;
            }
        }
        Ok(())
    }

    /// Carries out the step while a request fails. Returns its result, and whether one has failed. `together`: the
    /// trials that need the same nodes to be down.
    async fn carry_out(
        self,
        world: &World,
        store: &RedlockStore,
        scene: &Scene,
        together: &Barrier,
    ) -> (Answer, bool) {
        let name = scene.mine.name.as_str();
        if self.fault == Fault::Down {
            if together.wait().await.is_leader() {
                world.set_down(self.nodes, true);
            }
            together.wait().await;
            let said = scene.carry_out(store).await;
            if together.wait().await.is_leader() {
                world.set_down(self.nodes, false);
            }
            together.wait().await;
            return (said, true);
        }
        world.arm(name, self.fault, self.nodes, Some(self.at));
        let said = scene.carry_out(store).await;
        (said, world.disarm(name) > 0)
    }

    /// Returns whether a request failed.
    async fn run(self, world: &World, together: &Barrier) -> Outcome<bool> {
        let store = store(world.hosts.clone(), LONG).connect().await?;
        let stores = Stores {
            faulty: &store,
            sound: &world.sound,
            others: &world.sound,
            patience: LONGEST * 3,
            kept_out: LONGEST * 3,
        };
        let name = format!("jobs/{:?}/{}", self.step, ClientId::random());
        let mut scene = Scene::new(self.step, &name, LONG)?;
        scene.mine.ttl = match (self.step, self.fault) {
            // Nodes that are down keep what is withdrawn meanwhile, for its lease.
            (AGAIN, Fault::Down) => TTL,
            _ => LONG / 2,
        };
        scene.begin(&stores).await?;
        self.prepare(world, &scene).await?;
        if self.step == EXTEND {
            scene.mine.ttl = LONG;
        }
        let (answer, struck) = self.carry_out(world, &store, &scene, together).await;
        // One that fails gives back what it finds at nodes that reply.
        if !(self.step == AGAIN && answer.is_err()) {
            scene.judge(&stores, &answer, struck).await?;
        }
        if answer.is_ok() && [RELEASE, BREAK].contains(&self.step) {
            let left = having_at(world.nodes(), &name).await?;
            ensure(left < 3, format!("{left} nodes have it"))?;
        }
        scene.give_back(&stores, &answer).await?;
        let broken = self.step == BREAK && answer.is_ok();
        ensure(broken || store.tickets() == 0, "a ticket is kept")?;
        if self.step == SPLIT {
            for node in &world.nodes()[2..] {
                node.ask(&["DEL", &name]).await?;
            }
        }
        within(LONGEST * 3, scene.end(&stores)).await??;
        ensure(store.tickets() == 0, "a ticket is kept")?;
        Ok(struck)
    }
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
