//! Steps in a Redis Cluster, each request of which fails in each way, redirects among them: the outcome is that of the
//! step.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conformance_tests::proxy::{Fate, Proxy};
use conformance_tests::servers::RedisCluster;
use conformance_tests::steps::Call::{Adopt, Attempt, Break, Note, Release, Renew};
use conformance_tests::steps::{Scene, Step, Stores, WRITER, step};
use conformance_tests::task::{PATIENCE, run_trials, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::ClientId;
use lockkit_core::contract::{DistributedLock as _, Mode};
use lockkit_core::store::lock;
use lockkit_redis::{RedisStore, RedisStoreBuilder};

use crate::cluster::all;
use crate::redlock_faults::{BUSY, Fault, OOM, ticket};
use crate::world::{LONG, TTL};

/// The trials that run at once.
const TOGETHER: usize = 6;

/// What a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meets {
    /// A node that knows no better says that another one has the slot.
    Moved,
    /// A node says that the slot is on its way to another one, which does not know of it.
    Ask,
    Fails(Fault),
}

/// What the first request meets, so that the step sends a second one.
const BEFORE: [Option<Meets>; 4] = [
    None,
    Some(Meets::Moved),
    Some(Meets::Ask),
    Some(Meets::Fails(Fault::Refused(
        "-NOSCRIPT No matching script.\r\n",
    ))),
];

/// So many of them are also met by a second request.
const LATER: usize = 5;

const MEETS: [Meets; 10] = [
    Meets::Moved,
    Meets::Fails(Fault::Refused(
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    )),
    Meets::Fails(Fault::Refused(
        "-NOPERM this user has no permissions to run the 'evalsha' command\r\n",
    )),
    Meets::Fails(Fault::Cut),
    Meets::Fails(Fault::Lost),
    Meets::Ask,
    Meets::Fails(Fault::Refused("-CLUSTERDOWN Hash slot not served\r\n")),
    Meets::Fails(Fault::Refused(
        "-READONLY You can't write against a read only replica.\r\n",
    )),
    Meets::Fails(OOM),
    Meets::Fails(Fault::Silent),
];

/// The requests of one lock that meet something, in their order, at whichever node.
struct Order {
    meets: Vec<Meets>,
    slot: u16,
    struck: usize,
}

impl Order {
    /// `other` is the port of another master.
    fn fate(&mut self, request: &str, other: u16) -> Fate {
        let Some(meets) = self.meets.get(self.struck) else {
            return Fate::Pass;
        };
        self.struck += 1;
        let code = match meets {
            Meets::Fails(fault) => return fault.fate(request),
            Meets::Moved => "MOVED",
            Meets::Ask => "ASK",
        };
        let line = format!("-{code} {} 127.0.0.1:{other}\r\n", self.slot);
        let commands = request.matches("\r\n*").count() + 1;
        Fate::Answer(line.repeat(commands).into_bytes())
    }
}

const STEPS: [Step; 15] = [
    step("Attempt", Attempt),
    step("AttemptAgain", Attempt).known(true),
    step("AttemptBehind", Attempt).behind(WRITER),
    step("Renew", Renew),
    step("Release", Release),
    step("ReleaseBesideWaiter", Release).ahead_of(Mode::Exclusive),
    step("ReleaseWaiter", Release).behind(WRITER),
    step("Break", Break),
    step("Share", Attempt).mode(Mode::Read),
    step("ShareBehind", Attempt)
        .mode(Mode::Read)
        .behind(&[Mode::Write]),
    step("RenewShare", Renew).mode(Mode::Read),
    step("Unshare", Release).mode(Mode::Read),
    step("BreakShares", Break)
        .mode(Mode::Read)
        .ahead_of(Mode::Read),
    step("Note", Note).mode(Mode::Read),
    step("Adopt", Adopt).behind(WRITER),
];

/// Of stores whose waiters keep their places for as long as their leases.
fn builder(cluster: &RedisCluster) -> RedisStoreBuilder {
    all(cluster, "fifo").quarantine(None).recheck(LONG)
}

/// A cluster whose masters are known by the addresses of proxies.
struct World {
    cluster: RedisCluster,
    _ways: Vec<Proxy>,
    orders: Arc<Mutex<HashMap<String, Order>>>,
    sound: RedisStore,
}

impl World {
    async fn new() -> Outcome<Arc<Self>> {
        let cluster = RedisCluster::forgetful().await?;
        let orders = Arc::<Mutex<HashMap<String, Order>>>::default();
        let ways = cluster.behind_proxies().await?;
        let masters = &ways[..3];
        let ports: Vec<u16> = masters.iter().map(|way| way.addr().port()).collect();
        for (number, way) in masters.iter().enumerate() {
            let (orders, other) = (Arc::clone(&orders), ports[(number + 1) % 3]);
            way.judge(move |request| {
                let request = String::from_utf8_lossy(request);
                let mut orders = lock(&orders);
                let order = orders.iter_mut().find(|(name, _)| request.contains(*name));
                order.map_or(Fate::Pass, |(_, order)| order.fate(&request, other))
            });
        }
        let sound = builder(&cluster).response_timeout(PATIENCE);
        let sound = sound.connect().await?;
        // From now on the masters know all scripts.
        for (number, mode) in (0..12).flat_map(|it| [(it, Mode::Exclusive), (it, Mode::Read)]) {
            let first = ticket(&format!("first/{number}"), 1)?.with_mode(mode);
            sound.attempt(&first).await?;
            sound.renew(std::slice::from_ref(&first)).await.remove(0)?;
            sound.note(&first, "on shard 7").await?;
            let second = ticket(first.name.as_str(), 2)?.with_mode(mode);
            sound.adopt(first.holder, &second).await?;
            sound.break_lock(&first.name).await?;
            sound.release(&first).await?;
            sound.release(&second).await?;
        }
        Ok(Arc::new(Self {
            cluster,
            _ways: ways,
            orders,
            sound,
        }))
    }

    /// Nodes keep nothing but tokens and tombstones, once a lease has ended.
    async fn nothing_is_left(&self) -> Outcome {
        for node in &self.cluster.nodes()[..3] {
            let none = async || {
                let keys = node.ask(&["KEYS", "*jobs*"]).await?;
                let kept = ["redisson_lock_token:", "lockkit_gone:"];
                let is_kept = |key: &String| kept.iter().any(|kind| key.starts_with(kind));
                Ok(keys.iter().all(is_kept))
            };
            within(TTL + BUSY, until("nothing is left", none)).await??;
        }
        Ok(())
    }
}

/// One step of which one request fails, after another was redirected or none.
#[derive(Clone, Copy, Debug)]
struct Trial {
    step: Step,
    before: Option<Meets>,
    meets: Meets,
}

impl Trial {
    fn all() -> Vec<Self> {
        let mut trials = Vec::new();
        for (step, before) in STEPS
            .into_iter()
            .flat_map(|step| BEFORE.map(|it| (step, it)))
        {
            let meets = before.map_or(&MEETS[..], |_| &MEETS[..LATER]);
            trials.extend(meets.iter().map(|&meets| Self {
                step,
                before,
                meets,
            }));
        }
        trials
    }

    /// Returns whether the request was sent.
    async fn run(self, world: &World) -> Outcome<bool> {
        let mut store = builder(&world.cluster);
        if self.meets != Meets::Fails(Fault::Silent) {
            // A busy machine is no failure.
            store = store.response_timeout(PATIENCE);
        }
        let store = store.connect().await?;
        let stores = Stores {
            faulty: &store,
            sound: &world.sound,
            others: &world.sound,
            // On a busy machine the cluster itself may fail for a moment.
            patience: PATIENCE,
            kept_out: Duration::ZERO,
        };
        let name = format!("jobs/{:?}/{}", self.step, ClientId::random());
        let order = Order {
            meets: self.before.into_iter().chain([self.meets]).collect(),
            slot: world.cluster.slot_of(&name).await?,
            struck: 0,
        };
        let (expected, mut sent) = (order.meets.len(), 0);
        let arm = || drop(lock(&world.orders).insert(name.clone(), order));
        let disarm = || {
            let order = lock(&world.orders).remove(&name);
            sent = order.map_or(0, |order| order.struck);
            sent > 0
        };
        let scene = Scene::new(self.step, &name, LONG)?;
        scene.run(&stores, arm, disarm).await?;
        Ok(sent == expected)
    }
}

pub(crate) async fn step_in_a_cluster_returns_its_true_outcome() -> Outcome {
    let (world, trials) = (World::new().await?, Trial::all());
    let count = trials.len();
    let run = |trial: Trial| {
        let world = Arc::clone(&world);
        async move { trial.run(&world).await }
    };
    let struck = run_trials(trials, TOGETHER, run).await?;
    println!("the request was sent in {struck} of {count} trials");
    // On a busy machine a step may give up before.
    ensure(struck >= count * 19 / 20, format!("{struck} of {count}"))?;
    world.nothing_is_left().await
}
