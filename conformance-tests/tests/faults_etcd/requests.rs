//! Requests that fail, one after the other, in each step of the contract.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use conformance_tests::servers::EtcdCluster;
use conformance_tests::steps::Call::{Attempt, Break, Inspect, List, Note, Release, Renew, Watch};
use conformance_tests::steps::{PERMIT, Scene, Step, Stores, WRITER, each_request, step};
use conformance_tests::task::{repeated, until, within};
use conformance_tests::{Outcome, ensure};
use etcd_client::{Client, PutOptions};
use lockkit_core::contract::{Attempt as Attempted, DistributedLock as _, Mode};
use lockkit_core::{BackendError, ClientId, LockName, Outcome as Effect};
use lockkit_etcd::{EtcdStore, When};
use tokio::time::sleep;

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

/// Those of a client without a session.
const FIRST: [Step; 2] = [
    step("FirstAttempt", Attempt),
    step("FirstTry", Attempt).once(),
];

const STEPS: [Step; 19] = [
    FIRST[0],
    step("Attempt", Attempt),
    step("AttemptBehind", Attempt).behind(WRITER),
    step("Look", Attempt).known(true).behind(WRITER),
    FIRST[1],
    step("Try", Attempt).once(),
    step("TryBehind", Attempt).once().behind(WRITER),
    step("ReaderBehind", Attempt)
        .mode(Mode::Read)
        .behind(WRITER),
    step("ReaderTry", Attempt).mode(Mode::Read).once(),
    step("PermitTryBehind", Attempt)
        .mode(PERMIT)
        .once()
        .behind(WRITER),
    step("PermitLook", Attempt)
        .mode(PERMIT)
        .known(true)
        .behind(WRITER),
    step("Watch", Watch).behind(WRITER),
    step("Renew", Renew),
    step("ReleaseHold", Release),
    step("ReleaseWaiter", Release).behind(WRITER),
    step("Inspect", Inspect),
    step("List", List),
    step("Break", Break),
    step("Note", Note),
];

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

/// Lets the request after `passed` others fail in a step. Returns whether there was one.
async fn fails(
    cluster: &EtcdCluster,
    (asker, other): (&Client, &EtcdStore),
    (step, failure, passed): (Step, (Status, When), usize),
) -> Outcome<bool> {
    let mut asker = asker.clone();
    let fault = Arc::new(Fault::default());
    let store = failing(cluster, &fault, failure).await?;
    let name = format!("{step:?}-{}", ClientId::random());
    // Keys that are left on its session last as long as this.
    let kept = client_of(&store, TTL)?;
    let kept = match FIRST.contains(&step) {
        true => None,
        false => Some(kept.lock(format!("kept-{name}"))?.acquire().await?),
    };
    let stores = Stores {
        faulty: &store,
        sound: other,
        others: other,
        patience: Duration::from_millis(100),
        // What is left of a step blocks others for a ttl at most.
        kept_out: TTL + Duration::from_secs(1),
    };
    let mut scene = Scene::new(step, &name, LONG)?;
    scene.mine.ttl = TTL;
    let arm = || fault.left.store(passed + 1, Ordering::SeqCst);
    let disarm = || {
        fault.left.store(0, Ordering::SeqCst);
        fault.struck.load(Ordering::SeqCst) > 0
    };
    let struck = scene.run(&stores, arm, disarm).await?;
    until("nothing is left", async || {
        let all = keys(&mut asker).await?;
        Ok(!all.iter().any(|key| key.contains(&format!("/{name}/"))))
    })
    .await?;
    if let Some(kept) = kept {
        within(SOON, kept.release()).await??;
    }
    ensure(store.counts().tickets == 0, "a ticket is kept")?;
    Ok(struck)
}

/// Whichever request of a step fails, and with whichever error: the outcome is that of the whole step.
pub(crate) async fn failed_request_does_not_block_others() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let other = builder(&cluster.ports()).connect().await?;
    let others = (&cluster.client().await?, &other);
    let run = async |step, failure, passed| fails(&cluster, others, (step, failure, passed)).await;
    let failed = each_request(&STEPS, &failures(), run).await?;
    let first = failed.iter().filter(|(_, passed)| *passed == 0);
    let met: BTreeSet<_> = first.map(|(step, _)| step).collect();
    // Each of them has at least one.
    ensure(met.len() >= STEPS.len() - 1, format!("{met:?}"))
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
    let mode = PERMIT;
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
    if !matches!(granted, Attempted::Granted(_)) {
        granted = store.attempt(&tried).await?;
    }
    ensure(
        matches!(granted, Attempted::Granted(_)),
        format!("{granted:?}"),
    )?;
    let next = ticket("jobs", LONG)?.with_mode(mode);
    let second = other.attempt(&next).await?;
    ensure(
        !matches!(second, Attempted::Granted(_)),
        "two hold one permit",
    )?;
    other.release(&next).await?;
    repeated(SOON, || store.release(&tried)).await?;
    Ok(())
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
