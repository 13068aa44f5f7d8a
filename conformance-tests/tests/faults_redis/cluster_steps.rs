//! Steps in a Redis Cluster, each request of which fails in each way, redirects among them: the outcome is that of the
//! step.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use conformance_tests::proxy::{Fate, Proxy};
use conformance_tests::servers::RedisCluster;
use conformance_tests::task::{PATIENCE, repeated, run_trials, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::contract::{Attempt, DistributedLock as _, Mode, Renewal, Ticket};
use lockkit_core::store::lock;
use lockkit_core::{BackendError, ClientId, Outcome as Told};
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Attempt,
    AttemptAgain,
    AttemptBehind,
    Renew,
    Release,
    ReleaseBesideWaiter,
    ReleaseWaiter,
    Break,
    Share,
    ShareBehind,
    RenewShare,
    Unshare,
    BreakShares,
    Note,
    Adopt,
}

const STEPS: [Step; 15] = [
    Step::Attempt,
    Step::AttemptAgain,
    Step::AttemptBehind,
    Step::Renew,
    Step::Release,
    Step::ReleaseBesideWaiter,
    Step::ReleaseWaiter,
    Step::Break,
    Step::Share,
    Step::ShareBehind,
    Step::RenewShare,
    Step::Unshare,
    Step::BreakShares,
    Step::Note,
    Step::Adopt,
];

/// The note of a hold.
const NOTE: &str = "on shard 7";

impl Step {
    const fn is_first_attempt(self) -> bool {
        use Step::{Adopt, Attempt, AttemptBehind, Share, ShareBehind};
        matches!(self, Attempt | AttemptBehind | Share | ShareBehind | Adopt)
    }

    /// Whether the other ticket holds before.
    const fn is_behind(self) -> bool {
        use Step::{Adopt, AttemptBehind, ReleaseWaiter, ShareBehind};
        matches!(self, AttemptBehind | ReleaseWaiter | ShareBehind | Adopt)
    }

    /// Whether the other ticket is attempted behind the one of the step.
    const fn is_before(self) -> bool {
        matches!(self, Self::ReleaseBesideWaiter | Self::BreakShares)
    }

    /// Whether the ticket neither holds nor waits any more once it is done.
    const fn ends(self) -> bool {
        use Step::{AttemptAgain, Note, Renew, RenewShare};
        !(self.is_first_attempt() || matches!(self, AttemptAgain | Renew | RenewShare | Note))
    }

    /// The modes of the ticket of the step, and of the other one.
    const fn modes(self) -> (Mode, Mode) {
        use Step::{BreakShares, Note, RenewShare, Share, ShareBehind, Unshare};
        match self {
            BreakShares => (Mode::Read, Mode::Read),
            Share | ShareBehind | RenewShare | Unshare | Note => (Mode::Read, Mode::Write),
            _ => (Mode::Exclusive, Mode::Exclusive),
        }
    }

    /// Returns whether the ticket holds from now on, as far as the step says.
    async fn run(
        self,
        store: &RedisStore,
        ticket: &Ticket,
        other: &Ticket,
    ) -> Result<bool, BackendError> {
        let granted = |attempt: Attempt| matches!(attempt, Attempt::Granted(_));
        match self {
            Self::Release | Self::ReleaseBesideWaiter | Self::ReleaseWaiter | Self::Unshare => {
                store.release(ticket).await.map(|_| false)
            }
            Self::Break | Self::BreakShares => store.break_lock(&ticket.name).await.map(|_| false),
            Self::Note => store.note(ticket, NOTE).await,
            Self::Adopt => store.adopt(other.holder, ticket).await.map(granted),
            Self::Renew | Self::RenewShare => {
                let renewed = store.renew(std::slice::from_ref(ticket)).await.remove(0)?;
                Ok(renewed != Renewal::NotHeld)
            }
            _ => store.attempt(ticket).await.map(granted),
        }
    }
}

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
            sound.note(&first, NOTE).await?;
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

    /// What the step finds.
    async fn prepare(
        self,
        sound: &RedisStore,
        store: &RedisStore,
        [mine, other]: [&Ticket; 2],
    ) -> Outcome {
        if self.step.is_behind() {
            repeated(PATIENCE, || sound.attempt(other)).await?;
        }
        if !self.step.is_first_attempt() {
            repeated(PATIENCE, || store.attempt(mine)).await?;
        }
        if self.step.is_before() {
            repeated(PATIENCE, || sound.attempt(other)).await?;
        }
        Ok(())
    }

    /// Returns whether the request was sent.
    async fn run(self, world: &World) -> Outcome<bool> {
        let mut store = builder(&world.cluster);
        if self.meets != Meets::Fails(Fault::Silent) {
            // A busy machine is no failure.
            store = store.response_timeout(PATIENCE);
        }
        let store = store.connect().await?;
        let name = format!("jobs/{:?}/{}", self.step, ClientId::random());
        let slot = world.cluster.slot_of(&name).await?;
        let (mode, of_other) = self.step.modes();
        let mine = ticket(&name, 1)?.with_mode(mode).with_ttl(LONG);
        let other = ticket(&name, 2)?.with_mode(of_other).with_ttl(LONG);
        self.prepare(&world.sound, &store, [&mine, &other]).await?;
        let order = Order {
            meets: self.before.into_iter().chain([self.meets]).collect(),
            slot,
            struck: 0,
        };
        let expected = order.meets.len();
        lock(&world.orders).insert(name.clone(), order);
        let said = self.step.run(&store, &mine, &other).await;
        let order = lock(&world.orders).remove(&name);
        let struck = order.is_some_and(|order| order.struck == expected);
        // A renewal or a note without a reply leaves the lease as it was.
        let holds_on = matches!(self.step, Step::Renew | Step::RenewShare | Step::Note);
        if said.as_ref().map_or(holds_on, |holds| *holds) {
            let next = ticket(&name, 3)?.with_enqueue(false);
            let asked = repeated(PATIENCE, || world.sound.attempt(&next)).await?;
            ensure(matches!(asked, Attempt::Held { .. }), "two hold the lock")?;
        }
        let known = |error: &BackendError| error.outcome() != Told::Indeterminate;
        if said.as_ref().err().is_none_or(known) {
            self.check(world, [&mine, &other], said.is_ok()).await?;
        }
        // The test does not repeat what the step says that it did.
        let needs_release = match &said {
            Ok(_) => !self.step.ends(),
            Err(error) => !(known(error) && self.step.is_first_attempt()),
        };
        if needs_release {
            repeated(PATIENCE, || store.release(&mine)).await?;
        }
        // Of the one that holds or waits beside it. On a busy machine the cluster itself may fail for a moment.
        repeated(PATIENCE, || world.sound.release(&other)).await?;
        let next = ticket(&name, 4)?;
        let asked = repeated(PATIENCE, || world.sound.attempt(&next)).await?;
        let granted = matches!(asked, Attempt::Granted(_));
        ensure(granted, "no other client gets it")?;
        repeated(PATIENCE, || world.sound.release(&next)).await?;
        Ok(struck)
    }

    /// The lock is as the step says: the step was `done`, or had no effect.
    async fn check(self, world: &World, [mine, other]: [&Ticket; 2], done: bool) -> Outcome {
        let state = repeated(PATIENCE, || world.sound.inspect(&mine.name)).await?;
        let expected: &[&Ticket] = match (self.step, done) {
            (Step::Release | Step::Unshare | Step::Break | Step::BreakShares, true)
            | (Step::Attempt | Step::Share, false) => &[],
            (Step::BreakShares, false) => &[mine, other],
            (Step::ReleaseBesideWaiter, true) => &[other],
            (Step::Adopt, true) => &[mine],
            (step, _) if step.is_behind() => &[other],
            _ => &[mine],
        };
        let expected: BTreeSet<_> = expected.iter().map(|it| it.holder.to_string()).collect();
        let holders = state.iter().flat_map(|state| &state.holders);
        let ids: BTreeSet<_> = holders.clone().map(|holder| holder.id.clone()).collect();
        let note = (done && self.step == Step::Note).then_some(NOTE);
        let noted = holders.clone().all(|holder| holder.note.as_deref() == note);
        let waits = state.as_ref().is_some_and(|it| it.waiters != Some(0));
        let left = !(done && self.step.ends() && waits);
        let told = format!("done: {done}, and now {state:?}");
        ensure(ids == expected && noted && left, told)
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
