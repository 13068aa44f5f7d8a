//! Requests that fail, one after the other, in each step of the contract.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{until, within};
use conformance_tests::{Failure, Outcome, ensure};
use etcd_client::{Client, PutOptions};
use lockkit_core::contract::{Attempt, DistributedLock as _, Mode, Release, Renewal, Ticket};
use lockkit_core::{BackendError, LockName, Outcome as Effect};
use lockkit_etcd::{EtcdStore, When};
use tokio::time::{Instant, sleep};

use crate::sessions::ticket;
use crate::world::{LONG, SOON, TTL, builder, client_of, keys, lease};

/// A status in place of an answer: the gRPC code and the message.
type Status = (i32, &'static str);

/// Errors of requests that had no effect.
const NO_EFFECT: [Status; 4] = [
    (7, "etcdserver: permission denied"),
    (14, "etcdserver: no leader"),
    (8, "etcdserver: too many requests"),
    (3, "etcdserver: request is too large"),
];

/// Errors of requests that may have been executed.
const UNKNOWN: [Status; 4] = [
    (8, "etcdserver: mvcc: database space exceeded"),
    (14, "etcdserver: request timed out"),
    (2, "transport error: connection reset"),
    (11, "Error, decoded message length too large"),
];

/// Every failure with every moment at which it may occur.
fn failures() -> Vec<(Status, When)> {
    let before = NO_EFFECT.iter().chain(&UNKNOWN);
    let before = before.map(|status| (*status, When::Before));
    let after = UNKNOWN.iter().map(|status| (*status, When::After));
    before.chain(after).collect()
}

/// Counts requests from when it is armed, and lets one of them fail.
#[derive(Default)]
struct Fault {
    /// How many requests are left until it strikes; 0 where it is not armed.
    left: AtomicUsize,
    struck: AtomicUsize,
}

impl Fault {
    fn strikes(&self) -> bool {
        let left = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        let strikes = left == Ok(1);
        self.struck
            .fetch_add(usize::from(strikes), Ordering::SeqCst);
        strikes
    }
}

/// The calls of the contract, each in the states in which it sends different requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    FirstAttempt,
    Attempt,
    AttemptBehind,
    Look,
    FirstTry,
    Try,
    TryBehind,
    ReaderBehind,
    ReaderTry,
    PermitTryBehind,
    PermitLook,
    Watch,
    Renew,
    ReleaseHold,
    ReleaseWaiter,
    Inspect,
    List,
    Break,
    Note,
}

const STEPS: [Step; 19] = [
    Step::FirstAttempt,
    Step::Attempt,
    Step::AttemptBehind,
    Step::Look,
    Step::FirstTry,
    Step::Try,
    Step::TryBehind,
    Step::ReaderBehind,
    Step::ReaderTry,
    Step::PermitTryBehind,
    Step::PermitLook,
    Step::Watch,
    Step::Renew,
    Step::ReleaseHold,
    Step::ReleaseWaiter,
    Step::Inspect,
    Step::List,
    Step::Break,
    Step::Note,
];

/// The note of a hold.
const NOTE: &str = "on shard 7";

impl Step {
    /// The client forgets a ticket whose first attempt had no effect, and never releases it.
    fn is_first_attempt(self) -> bool {
        use Step::{Attempt, AttemptBehind, FirstAttempt, ReaderBehind};
        !self.enqueues() || matches!(self, FirstAttempt | Attempt | AttemptBehind | ReaderBehind)
    }

    fn enqueues(self) -> bool {
        use Step::{FirstTry, PermitTryBehind, ReaderTry, Try, TryBehind};
        !matches!(
            self,
            FirstTry | Try | TryBehind | ReaderTry | PermitTryBehind
        )
    }

    fn mode(self) -> Mode {
        match self {
            Self::ReaderBehind | Self::ReaderTry => Mode::Read,
            Self::PermitTryBehind | Self::PermitLook => Mode::Permit {
                of: NonZeroU32::MIN,
            },
            _ => Mode::Exclusive,
        }
    }

    /// Whether another client holds the lock meanwhile.
    fn is_behind(self) -> bool {
        use Step::{
            AttemptBehind, Look, PermitLook, PermitTryBehind, ReaderBehind, ReleaseWaiter,
            TryBehind, Watch,
        };
        matches!(
            self,
            AttemptBehind
                | Look
                | TryBehind
                | Watch
                | ReleaseWaiter
                | ReaderBehind
                | PermitTryBehind
                | PermitLook
        )
    }

    /// Whether it returns what it must.
    async fn run(self, store: &EtcdStore, ticket: &Ticket) -> Result<bool, BackendError> {
        Ok(match self {
            Self::Watch => {
                let mut watch = store.watch(ticket).await?;
                // It has no news, but it may send requests meanwhile.
                let told = within(Duration::from_millis(100), watch.changed()).await;
                told.map_or(Ok(true), |told| told.map(|_| true))?
            }
            Self::Renew => {
                let renewed = store.renew(std::slice::from_ref(ticket)).await.pop();
                matches!(renewed.transpose()?, Some(Renewal::Renewed { .. }))
            }
            Self::ReleaseHold => store.release(ticket).await? == Release::Released,
            Self::ReleaseWaiter => store.release(ticket).await? == Release::NotHeld,
            Self::Inspect => store.inspect(&ticket.name).await?.is_some(),
            Self::List => store.list(ticket.name.as_str()).await?.len() == 1,
            Self::Break => store.break_lock(&ticket.name).await?.is_some(),
            Self::Note => store.note(ticket, NOTE).await?,
            _ => matches!(store.attempt(ticket).await?, Attempt::Granted(_)) != self.is_behind(),
        })
    }
}

async fn release(store: &EtcdStore, ticket: &Ticket) -> Outcome {
    let mut last = Ok(());
    for _ in 0..10 {
        match store.release(ticket).await {
            Ok(_) => return Ok(()),
            Err(error) => last = Err(error.into()),
        }
    }
    last
}

/// A store with a request that fails once the fault is armed.
async fn failing(
    cluster: &EtcdCluster,
    fault: &Arc<Fault>,
    (status, when): (Status, When),
) -> Outcome<EtcdStore> {
    let fault = Arc::clone(fault);
    let store = builder(&cluster.ports()).obstacle(move |_, now| {
        let strikes = now == when && fault.strikes();
        Box::pin(async move { if strikes { Err(status) } else { Ok(()) } })
    });
    Ok(store.connect().await?)
}

/// What is left of a step blocks others for a ttl at most.
async fn others_are_served(asker: &mut Client, other: &EtcdStore, name: &str) -> Outcome {
    let next = ticket(name, LONG)?;
    let end = Instant::now() + TTL + Duration::from_secs(1);
    while !matches!(other.attempt(&next).await?, Attempt::Granted(_)) {
        if Instant::now() > end {
            let all = keys(asker).await?;
            return Err(Failure::new(format!("others are kept out: {all:?}")));
        }
        sleep(Duration::from_millis(10)).await;
    }
    other.release(&next).await?;
    until("nothing is left", async || {
        let all = keys(asker).await?;
        Ok(!all.iter().any(|key| key.contains(&format!("/{name}/"))))
    })
    .await
}

/// Another client sees what the step has done, or that it has done nothing.
async fn has_the_effect(
    step: Step,
    other: &EtcdStore,
    (holder, ticket): (&Ticket, &Ticket),
    answer: &Result<bool, BackendError>,
) -> Outcome {
    let done = match answer {
        Err(error) if error.outcome() == Effect::Indeterminate => return Ok(()),
        answer => answer.is_ok(),
    };
    let expected = match step {
        step if step.is_behind() => Some(holder),
        Step::ReleaseHold | Step::Break if done => None,
        step => (done || !step.is_first_attempt()).then_some(ticket),
    };
    let note = (done && step == Step::Note).then_some(NOTE);
    let seen = other.inspect(&ticket.name).await?;
    let holders = seen.iter().flat_map(|state| &state.holders);
    let holders = holders.map(|it| (it.id.clone(), it.note.as_deref()));
    let is_so = holders.eq(expected.map(|ticket| (ticket.holder.to_string(), note)));
    ensure(
        is_so && *answer.as_ref().unwrap_or(&true),
        format!("{step:?}: {answer:?}, but {seen:?}"),
    )
}

/// Lets the request with the number `at` fail in a step. Returns whether there was one.
async fn fails(
    cluster: &EtcdCluster,
    asker: &mut Client,
    other: &EtcdStore,
    name: &str,
    (step, at, failure): (Step, usize, (Status, When)),
) -> Outcome<bool> {
    let fault = Arc::new(Fault::default());
    let store = failing(cluster, &fault, failure).await?;
    // Keys that are left on its session last as long as this.
    let kept = client_of(&store, TTL)?;
    let kept = match step {
        Step::FirstAttempt | Step::FirstTry => None,
        _ => Some(kept.lock(format!("kept-{name}"))?.acquire().await?),
    };
    let holder = ticket(name, LONG)?;
    if step.is_behind() {
        other.attempt(&holder).await?;
    }
    let ticket = ticket(name, TTL)?.with_enqueue(step.enqueues());
    let ticket = ticket.with_mode(step.mode());
    if !step.is_first_attempt() {
        store.attempt(&ticket).await?;
    }
    fault.left.store(at, Ordering::SeqCst);
    let answer = step.run(&store, &ticket).await;
    fault.left.store(0, Ordering::SeqCst);
    let struck = fault.struck.load(Ordering::SeqCst) > 0;
    let tickets = (&holder, &ticket);
    has_the_effect(step, other, tickets, &answer).await?;
    let gone = match &answer {
        Ok(_) => matches!(step, Step::ReleaseHold | Step::ReleaseWaiter),
        Err(error) => step.is_first_attempt() && error.outcome() != Effect::Indeterminate,
    };
    if !gone {
        release(&store, &ticket).await?;
    }
    if step.is_behind() {
        other.release(&holder).await?;
    }
    if let Err(failed) = others_are_served(asker, other, name).await {
        let why = format!("{step:?}: request {at}: {failure:?}: {answer:?}: {failed}");
        return Err(Failure::new(why));
    }
    if let Some(kept) = kept {
        within(SOON, kept.release()).await??;
    }
    ensure(
        store.counts().tickets == 0,
        format!("{step:?}: {failure:?}: a ticket is kept"),
    )?;
    Ok(struck)
}

/// Whichever request of a step fails, and with whichever error: the outcome is that of the whole step.
pub(crate) async fn failed_request_does_not_block_others() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let other = builder(&cluster.ports()).connect().await?;
    let mut met = BTreeSet::new();
    for (number, failure) in failures().into_iter().enumerate() {
        for step in STEPS {
            for at in 1.. {
                let name = format!("{step:?}-{number}-{at}");
                let failing = (step, at, failure);
                if !fails(&cluster, &mut asker, &other, &name, failing).await? {
                    break;
                }
                met.insert((format!("{step:?}"), at));
            }
        }
    }
    // Each of them has at least one.
    ensure(
        met.iter().filter(|(_, at)| *at == 1).count() >= STEPS.len() - 1,
        format!("{met:?}"),
    )
}

/// More holders than one transaction ends: once the first of them are out, a refusal of the rest is no failure without
/// an effect.
pub(crate) async fn break_that_fails_in_part_is_indeterminate() -> Outcome {
    const READERS: usize = 150;
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let lease = asker.lease_grant(600, None).await?.id();
    let name = LockName::new("jobs")?;
    let mut in_part = 0;
    for at in 1.. {
        for number in 0..READERS {
            let options = PutOptions::new().with_lease(lease);
            let key = format!("lockkit/{name}/s{lease:x}-{number}");
            asker.put(key, "", Some(options)).await?;
        }
        let fault = Arc::new(Fault::default());
        let store = failing(&cluster, &fault, (NO_EFFECT[0], When::Before)).await?;
        fault.left.store(at, Ordering::SeqCst);
        let broken = store.break_lock(&name).await;
        fault.left.store(0, Ordering::SeqCst);
        if fault.struck.load(Ordering::SeqCst) == 0 {
            break;
        }
        let left = keys(&mut asker).await?.len();
        let told = broken.err().map(|error| error.outcome());
        let expected = match left {
            READERS => Effect::Rejected,
            _ => Effect::Indeterminate,
        };
        in_part += usize::from(0 < left && left < READERS);
        let seen = format!("request {at}: {told:?}, and {left} hold");
        ensure(told == Some(expected), seen)?;
    }
    ensure(in_part == 1, format!("{in_part} breaks ended in between"))
}

/// A try for a permit deletes its key again. Where that has no answer, it may be carried out at any time.
pub(crate) async fn late_deletion_of_a_try_ends_no_later_hold() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let other = builder(&cluster.ports()).connect().await?;
    let mode = Step::PermitTryBehind.mode();
    let holder = ticket("jobs", LONG)?.with_mode(mode);
    other.attempt(&holder).await?;
    let held = keys(&mut asker).await?;
    let fault = Arc::new(Fault::default());
    let store = failing(&cluster, &fault, (UNKNOWN[1], When::Before)).await?;
    let tried = ticket("jobs", LONG)?.with_mode(mode).with_enqueue(false);
    // The session, the key, its deletion.
    fault.left.store(3, Ordering::SeqCst);
    let failed = store.attempt(&tried).await;
    let outcome = failed.as_ref().err().map(BackendError::outcome);
    ensure(
        outcome == Some(Effect::Indeterminate),
        format!("{failed:?}"),
    )?;
    let mut left = keys(&mut asker).await?;
    left.retain(|key| !held.contains(key));
    ensure(left.len() == 1, format!("{left:?} are left of the try"))?;
    other.release(&holder).await?;
    let mut granted = store.attempt(&tried).await?;
    // Now the deletion arrives.
    asker.delete(&*left[0], None).await?;
    if !matches!(granted, Attempt::Granted(_)) {
        granted = store.attempt(&tried).await?;
    }
    ensure(
        matches!(granted, Attempt::Granted(_)),
        format!("{granted:?}"),
    )?;
    let next = ticket("jobs", LONG)?.with_mode(mode);
    let second = other.attempt(&next).await?;
    ensure(
        !matches!(second, Attempt::Granted(_)),
        "two hold one permit",
    )?;
    release(&other, &next).await?;
    release(&store, &tried).await
}

/// A release that was executed is no loss, whatever error the server returns.
pub(crate) async fn executed_release_is_no_loss() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    for status in UNKNOWN {
        let fault = Arc::new(Fault::default());
        let armed = Arc::clone(&fault);
        let store = builder(&cluster.ports())
            .obstacle(move |operation, now| {
                let strikes = operation == "release" && now == When::After && armed.strikes();
                Box::pin(async move { if strikes { Err(status) } else { Ok(()) } })
            })
            .connect()
            .await?;
        let guard = client_of(&store, LONG)?.lock("jobs")?.acquire().await?;
        fault.left.store(1, Ordering::SeqCst);
        within(SOON, guard.release()).await??;
        ensure(fault.struck.load(Ordering::SeqCst) == 1, "it did not fail")?;
    }
    Ok(())
}

/// Deletions are slow on a slow disk, and keep-alives are not. No keep-alive waits for a deletion.
pub(crate) async fn slow_deletion_delays_no_keep_alive() -> Outcome {
    const GHOSTS: usize = 8;
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let store = builder(&cluster.ports())
        .obstacle(|operation, now| {
            let slow = now == When::Before && ["release", "sweep"].contains(&operation);
            Box::pin(async move {
                if slow {
                    sleep(Duration::from_millis(950)).await;
                }
                Ok(())
            })
        })
        .connect()
        .await?;
    let guard = client_of(&store, TTL)?.lock("kept")?.acquire().await?;
    let lease = lease(&store)?;
    for number in 0..GHOSTS {
        let options = PutOptions::new().with_lease(lease);
        let ghost = format!("lockkit/ghost{number}/{lease:x}-99999{number}");
        asker.put(ghost, "late", Some(options)).await?;
    }
    // No loss within the time that all deletions take together.
    let lost = within(TTL * 3, guard.lost()).await;
    ensure(lost.is_err(), format!("{lost:?}"))?;
    until("the late keys are deleted", async || {
        Ok(keys(&mut asker).await?.len() == 1)
    })
    .await?;
    guard.release().await?;
    Ok(())
}
