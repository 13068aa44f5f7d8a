//! Steps of several requests, one of which fails: the outcome is that of the whole step.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use conformance_tests::steps::Call::{Attempt, Break, Inspect, List, Note, Release, Renew, Watch};
use conformance_tests::steps::{Scene, Step, Stores, WRITER, each_request, step};
use conformance_tests::task::{PATIENCE, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::contract::Mode;
use lockkit_core::{Error, Outcome as Effect};
use lockkit_zk::{Access, Auth};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use crate::wire::{Fault, Wire};
use crate::world::{LONG, Plot, SOON, client};

/// Codes of permanent refusals, of passing ones, and of an error of unknown effect.
const FAULTS: [Fault; 8] = [
    Fault::Refused(-102), // no rights
    Fault::Refused(-125), // quota
    Fault::Refused(-127), // throttled
    Fault::Refused(-118), // session moved
    Fault::Refused(-1),
    Fault::Failed(-1),
    Fault::CutBefore,
    Fault::CutAfter,
];

/// Acquires a name that was never used.
const FIRST: Step = step("First", Attempt);

const STEPS: [Step; 14] = [
    FIRST,
    step("Acquire", Attempt).used(),
    step("Try", Attempt).used().once(),
    step("TryHeld", Attempt)
        .used()
        .once()
        .behind(WRITER)
        .reads(),
    step("Queue", Attempt).used().behind(WRITER),
    // A waiter repeats its attempt.
    step("Again", Attempt).used().known(true).behind(WRITER),
    step("Watch", Watch).used().behind(WRITER).reads(),
    step("Renew", Renew).used(),
    step("Release", Release).used(),
    step("Leave", Release).used().behind(WRITER),
    // Breaks the lock of two readers.
    step("BreakShared", Break)
        .used()
        .known(false)
        .behind(&[Mode::Read; 2]),
    step("Note", Note).used(),
    step("Inspect", Inspect).used().known(false).behind(WRITER),
    step("List", List).used().known(false).behind(WRITER),
];

pub(crate) async fn step_returns_its_true_outcome_whichever_request_fails() -> Outcome {
    let plot = Plot::new().await?;
    let wire = Wire::start(plot.port).await?;
    let behind = plot.builder_at(wire.port).session(LONG);
    let (store, other) = (behind.connect().await?, plot.builder().session(LONG));
    let other = other.connect().await?;
    let stores = Stores {
        faulty: &store,
        sound: &other,
        others: &other,
        patience: PATIENCE,
        kept_out: SOON / 2,
    };
    let number = AtomicU32::new(0);
    let run = async |step, fault, passed| {
        // No name begins with another one.
        let name = format!("step-{:05}", number.fetch_add(1, Ordering::Relaxed));
        let scene = Scene::new(step, &name, LONG)?;
        let arm = || wire.fail(passed, fault);
        let struck = scene.run(&stores, arm, || wire.heal()).await?;
        let dir = format!("{}/{name}", plot.root);
        let left = plot.bare.list_children(&dir).await.unwrap_or_default();
        ensure(left.is_empty(), format!("{left:?} are left"))?;
        let tickets = store.tickets();
        ensure(tickets == 0, format!("{tickets} tickets are kept"))?;
        Ok(struck)
    };
    let failed = each_request(&STEPS, &FAULTS, run).await?.len();
    ensure(failed > 150, format!("only {failed} requests failed"))
}

/// A user who may create and delete nodes, but not list them, gets an error and leaves nothing.
pub(crate) async fn user_who_may_not_list_leaves_no_node() -> Outcome {
    let plot = Plot::new().await?;
    let anyone = CreateMode::Persistent.with_acls(Acls::anyone_all());
    plot.bare.mkdir(&plot.root, &anyone).await?;
    let acls = [
        Acl::new(Permission::CREATE | Permission::DELETE, AuthId::anyone()),
        Acl::new(Permission::ALL, AuthId::new("digest", OPERATOR)),
    ];
    let made = CreateMode::Persistent.with_acls(Acls::from(&acls[..]));
    plot.bare.create(&plot.dir(), b"", &made).await?;
    let limited = plot.lock().await?;
    let operator = plot
        .builder()
        .user(Auth::Digest, "operator", "s3cret")
        .access(Access::Anyone);
    let operator = client(operator).await?.lock("jobs")?;
    for _ in 0..2 {
        let refused = within(Duration::from_secs(2), limited.acquire()).await?;
        match refused {
            Err(Error::Backend(error)) if error.outcome() == Effect::Rejected => {}
            other => return Err(Failure::new(format!("{other:?}"))),
        }
        let guard = within(Duration::from_secs(1), operator.acquire()).await??;
        guard.release().await?;
    }
    Ok(())
}

/// `operator:s3cret` as the scheme `digest` writes it.
const OPERATOR: &str = "operator:nommUAxkr4guw6qRbJu3OYWorqo=";

/// A create that was lost with its connection is executed later, when its ticket has another node.
pub(crate) async fn late_create_leaves_no_node() -> Outcome {
    let plot = Plot::new().await?;
    let wire = Wire::start(plot.port).await?;
    let store = plot.builder_at(wire.port).session(LONG);
    let lock = client(store).await?.lock("jobs")?;
    lock.acquire().await?.release().await?;
    wire.fail(0, Fault::Late);
    let guard = lock.acquire().await?;
    plot.queued(2).await?;
    ensure(wire.heal(), "nothing came late")?;
    plot.queued(1).await?;
    guard.check()?;
    guard.release().await?;
    plot.queued(0).await
}
