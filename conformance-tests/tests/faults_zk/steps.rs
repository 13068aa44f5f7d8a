//! Steps of several requests, one of which fails: the outcome is that of the whole step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use conformance_tests::task::{until, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::contract::{Attempt, Release, Renewal, Ticket};
use lockkit_core::{
    BackendError, ClientId, DistributedLock, Error, Guard, HolderId, Lock, LockClient, LockName,
    Outcome as Effect,
};
use lockkit_zk::{Access, Auth, ZkStore};
use zookeeper_client::{Acl, Acls, AuthId, CreateMode, Permission};

use crate::wire::{Fault, Wire};
use crate::world::{LONG, Plot, SOON, client};

/// More requests than any step has.
const MOST: usize = 8;

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

/// What a store is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Acquires a name that was never used.
    First,
    Acquire,
    Try,
    TryHeld,
    Queue,
    /// A waiter repeats its attempt.
    Again,
    Watch,
    Renew,
    Release,
    Leave,
    /// Breaks the lock of two readers.
    BreakShared,
    Note,
    Inspect,
    List,
}

const STEPS: [Step; 14] = [
    Step::First,
    Step::Acquire,
    Step::Try,
    Step::TryHeld,
    Step::Queue,
    Step::Again,
    Step::Watch,
    Step::Renew,
    Step::Release,
    Step::Leave,
    Step::BreakShared,
    Step::Note,
    Step::Inspect,
    Step::List,
];

/// The note of a hold.
const NOTE: &str = "on shard 7";

impl Step {
    const fn is_behind_a_holder(self) -> bool {
        matches!(
            self,
            Self::TryHeld
                | Self::Queue
                | Self::Again
                | Self::Watch
                | Self::Leave
                | Self::Inspect
                | Self::List
        )
    }

    /// Whether nothing of the ticket is left.
    const fn ends(self) -> bool {
        matches!(
            self,
            Self::TryHeld
                | Self::Release
                | Self::Leave
                | Self::BreakShared
                | Self::Inspect
                | Self::List
        )
    }

    /// Whether it sends a request that writes.
    const fn may_write(self) -> bool {
        !matches!(
            self,
            Self::TryHeld | Self::Watch | Self::Inspect | Self::List
        )
    }

    /// Whether the ticket was attempted before.
    const fn is_known(self) -> bool {
        matches!(
            self,
            Self::Again | Self::Watch | Self::Renew | Self::Release | Self::Leave | Self::Note
        )
    }
}

/// Who takes part in one run.
struct Scene {
    plot: Plot,
    wire: Wire,
    /// Behind the wire.
    store: ZkStore,
    other: LockClient,
}

pub(crate) async fn step_returns_its_true_outcome_whichever_request_fails() -> Outcome {
    let plot = Plot::new().await?;
    let wire = Wire::start(plot.port).await?;
    let behind = plot.builder_at(wire.port).session(LONG);
    let scene = Scene {
        store: behind.connect().await?,
        other: client(plot.builder().session(LONG)).await?,
        wire,
        plot,
    };
    let mut failed = 0;
    for step in STEPS {
        for fault in FAULTS {
            for skip in 0..MOST {
                let what = |error: Failure| {
                    Failure::new(format!("{step:?}, request {skip} {fault:?}: {error}"))
                };
                if !scene.run(step, skip, fault).await.map_err(what)? {
                    break;
                }
                failed += 1;
            }
        }
    }
    ensure(failed > 150, format!("only {failed} requests failed"))
}

impl Scene {
    /// Runs a step of which one request fails; whether the step has that many.
    async fn run(&self, step: Step, skip: usize, fault: Fault) -> Outcome<bool> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // No name begins with another one.
        let name = format!("step-{number:05}");
        let lock = self.other.lock(&*name)?;
        if step != Step::First {
            lock.acquire().await?.release().await?;
        }
        let holders = self.holders(step, &name).await?;
        let holder_id = HolderId::new(ClientId::random(), number);
        let ticket = Ticket::new(LockName::new(&*name)?, holder_id, LONG)
            .with_enqueue(!matches!(step, Step::Try | Step::TryHeld));
        if step.is_known() {
            self.settled(|| self.store.attempt(&ticket)).await?;
        }
        self.wire.fail(skip, fault);
        let answer = self.step(step, &ticket).await;
        let reached = self.wire.heal();
        let lost = |error: &BackendError| error.outcome() == Effect::Indeterminate;
        ensure(
            step.may_write() || !answer.as_ref().is_err_and(lost),
            format!("nothing was written, but {answer:?}"),
        )?;
        has_the_effect(step, &lock, &ticket, &answer).await?;
        let may_stand = match &answer {
            Ok(_) => !step.ends(),
            Err(error) => step.is_known() || error.outcome() == Effect::Indeterminate,
        };
        // As a client does.
        if may_stand {
            self.settled(|| self.store.release(&ticket)).await?;
        }
        for holder in holders {
            let released = holder.release().await;
            if step != Step::BreakShared {
                released?;
            }
        }
        let late = |_| Failure::new(format!("{answer:?}, and the lock is not free"));
        let guard = within(SOON / 2, lock.acquire()).await.map_err(late)??;
        guard.release().await?;
        let dir = format!("{}/{name}", self.plot.root);
        let left = self.plot.bare.list_children(&dir).await.unwrap_or_default();
        ensure(left.is_empty(), format!("{answer:?} leaves {left:?}"))?;
        let tickets = self.store.tickets();
        ensure(tickets == 0, format!("{answer:?}: {tickets} are kept"))?;
        Ok(reached)
    }

    /// The holds of others that the step finds.
    async fn holders(&self, step: Step, name: &str) -> Outcome<Vec<Guard>> {
        if step == Step::BreakShared {
            let readers = self.other.rw_lock(name)?.read();
            return Ok(vec![readers.acquire().await?, readers.acquire().await?]);
        }
        match step.is_behind_a_holder() {
            true => Ok(vec![self.other.lock(name)?.acquire().await?]),
            false => Ok(Vec::new()),
        }
    }

    /// Whether the step returns what it must.
    async fn step(&self, step: Step, ticket: &Ticket) -> Result<bool, BackendError> {
        let store = &self.store;
        Ok(match step {
            Step::First | Step::Acquire | Step::Try => {
                matches!(store.attempt(ticket).await?, Attempt::Granted(_))
            }
            Step::TryHeld | Step::Queue | Step::Again => {
                matches!(store.attempt(ticket).await?, Attempt::Held { .. })
            }
            Step::Watch => store.watch(ticket).await.map(|_| true)?,
            Step::Renew => {
                let renewed = store.renew(std::slice::from_ref(ticket)).await.pop();
                matches!(renewed.transpose()?, Some(Renewal::Renewed { .. }))
            }
            Step::Release => store.release(ticket).await? == Release::Released,
            Step::Leave => store.release(ticket).await? == Release::NotHeld,
            Step::BreakShared => store.break_lock(&ticket.name).await?.is_some(),
            Step::Note => store.note(ticket, NOTE).await?,
            Step::Inspect => store.inspect(&ticket.name).await?.is_some(),
            Step::List => store.list(ticket.name.as_str()).await?.len() == 1,
        })
    }

    /// Repeats a request until it is answered.
    async fn settled<T, F>(&self, mut request: impl FnMut() -> F) -> Outcome<T>
    where
        F: Future<Output = Result<T, BackendError>>,
    {
        let mut last = None;
        until("the store answers", async || {
            last = request().await.ok();
            Ok(last.is_some())
        })
        .await?;
        last.ok_or_else(|| Failure::new("no answer"))
    }
}

/// Another client sees what the answer says.
async fn has_the_effect(
    step: Step,
    lock: &Lock,
    ticket: &Ticket,
    answer: &Result<bool, BackendError>,
) -> Outcome {
    let done = match answer {
        Ok(fits) => *fits,
        Err(error) if error.outcome() == Effect::Indeterminate => return Ok(()),
        Err(_) => false,
    };
    ensure(
        done || answer.is_err(),
        format!("{step:?} returns something else"),
    )?;
    let seen = lock.inspect().await?;
    let id = ticket.holder.to_string();
    let (mine, others): (Vec<_>, Vec<_>) = seen
        .iter()
        .flat_map(|state| &state.holders)
        .partition(|holder| holder.id == id);
    let holds = match step {
        Step::First | Step::Acquire | Step::Try => done,
        Step::Release => !done,
        step => matches!(step, Step::Renew | Step::Note),
    };
    let beside = match step {
        Step::BreakShared if !done => 2,
        step => usize::from(step.is_behind_a_holder()),
    };
    let noted = mine.iter().any(|mine| mine.note.as_deref() == Some(NOTE));
    // A repeated attempt that is rejected has given up its place.
    let waits = matches!(step, Step::Queue | Step::Again | Step::Watch);
    let waiters = seen.as_ref().and_then(|state| state.waiters).unwrap_or(0);
    let is_so = (mine.len(), others.len()) == (usize::from(holds), beside)
        && noted == (done && step == Step::Note)
        && (!done || waiters == u32::from(waits));
    ensure(is_so, format!("{answer:?}, but {seen:?}"))
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
