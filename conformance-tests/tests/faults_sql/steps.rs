//! Steps of several requests, each of which fails in each way: the outcome is that of the whole step, and
//! nothing is left that keeps others out.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::task::{PATIENCE, repeated, run_trials};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::contract::{Attempt, DistributedLock, Mode, Release, Renewal, Ticket};
use lockkit_core::{BackendError, ClientId, HolderId, LockName, Outcome as Told, PollRange};
use lockkit_sql::{SqlFailure, SqlFaults, SqlStoreBuilder, Sqlite};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::world::{Database, LONG, SOON, WAYS, builder, only_rows_left};

const FAILURES: [SqlFailure; 4] = [
    SqlFailure::Refused,
    SqlFailure::Unavailable,
    SqlFailure::RequestLost,
    SqlFailure::ReplyLost,
];

/// More than the requests of any step without contention.
const REQUESTS: u32 = 4;

/// The trials that run at once.
const TOGETHER: usize = 40;

/// The note of a hold.
const NOTE: &str = "a note";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Attempt,
    /// Of a lock that was released before.
    AttemptAgain,
    /// Behind a reader: it keeps later ones out.
    AttemptBehindReader,
    AttemptBehindWriter,
    /// Of a ticket that waits behind a writer.
    Withdraw,
    Renew,
    Release,
    Break,
    Note,
    /// Of readers, as all that follow.
    Share,
    ShareBehindWriter,
    /// The only one.
    PermitBehindPermit,
    RenewShared,
    Unshare,
    BreakShared,
    Adopt,
    AdoptShared,
}

const PERMIT: Mode = Mode::Permit {
    of: NonZeroU32::MIN,
};

const STEPS: [Step; 17] = [
    Step::Attempt,
    Step::AttemptAgain,
    Step::AttemptBehindReader,
    Step::AttemptBehindWriter,
    Step::Withdraw,
    Step::Renew,
    Step::Release,
    Step::Break,
    Step::Note,
    Step::Share,
    Step::ShareBehindWriter,
    Step::PermitBehindPermit,
    Step::RenewShared,
    Step::Unshare,
    Step::BreakShared,
    Step::Adopt,
    Step::AdoptShared,
];

impl Step {
    /// The mode of its ticket.
    const fn mode(self) -> Mode {
        match self {
            Self::Share
            | Self::ShareBehindWriter
            | Self::RenewShared
            | Self::Unshare
            | Self::BreakShared
            | Self::AdoptShared => Mode::Read,
            Self::PermitBehindPermit => PERMIT,
            _ => Mode::Exclusive,
        }
    }

    /// The mode of another ticket that holds before.
    const fn other(self) -> Option<Mode> {
        match self {
            Self::AttemptBehindReader | Self::AdoptShared => Some(Mode::Read),
            Self::PermitBehindPermit => Some(PERMIT),
            Self::AttemptBehindWriter | Self::Withdraw | Self::ShareBehindWriter | Self::Adopt => {
                Some(Mode::Exclusive)
            }
            _ => None,
        }
    }

    /// Whether it may make its ticket a holder, which is not one before.
    const fn grants(self) -> bool {
        match self {
            Self::Attempt
            | Self::AttemptAgain
            | Self::AttemptBehindReader
            | Self::AttemptBehindWriter
            | Self::Share
            | Self::ShareBehindWriter
            | Self::PermitBehindPermit
            | Self::Adopt
            | Self::AdoptShared => true,
            Self::Withdraw
            | Self::Renew
            | Self::Release
            | Self::Break
            | Self::Note
            | Self::RenewShared
            | Self::Unshare
            | Self::BreakShared => false,
        }
    }

    /// Whether its ticket has to wait.
    const fn waits(self) -> bool {
        matches!(
            self,
            Self::AttemptBehindReader
                | Self::AttemptBehindWriter
                | Self::ShareBehindWriter
                | Self::PermitBehindPermit
        )
    }

    /// Whether no hold and no place of its ticket is left.
    const fn ends(self) -> bool {
        matches!(
            self,
            Self::Withdraw | Self::Release | Self::Break | Self::Unshare | Self::BreakShared
        )
    }

    /// Pinned holds are exclusive and stay with their tickets.
    fn is_offered(self, way: &str) -> bool {
        let mut modes = [Some(self.mode()), self.other()].into_iter().flatten();
        let shares = modes.any(|mode| !mode.is_exclusive());
        way != "pin" || !(shares || self == Self::Adopt)
    }
}

type Store = Arc<dyn DistributedLock>;

/// The store whose requests fail, and one whose do not.
struct Stores {
    faulty: Store,
    sound: Store,
    _file: Option<TempDir>,
}

/// One step of which one request fails.
#[derive(Clone, Copy, Debug)]
struct Trial {
    way: &'static str,
    step: Step,
    failure: SqlFailure,
    passed: u32,
}

impl Trial {
    fn ticket(self, number: u64, mode: Mode) -> Outcome<Ticket> {
        let holder = HolderId::new(ClientId::random(), number);
        let name = format!("{} {self:?}", self.way);
        let name = LockName::new(name)?;
        // No lease ends: what is left of a step keeps others out.
        Ok(Ticket::new(name, holder, LONG).with_mode(mode))
    }

    /// Carries out the step. Returns whether it returned what it must.
    async fn carry_out(
        self,
        store: &Store,
        ticket: &Ticket,
        other: Option<&Ticket>,
    ) -> Result<bool, BackendError> {
        let fits = |attempt| matches!(attempt, Attempt::Granted(_)) != self.step.waits();
        Ok(match (self.step, other) {
            (Step::Adopt | Step::AdoptShared, Some(from)) => {
                fits(store.adopt(from.holder, ticket).await?)
            }
            (step, _) if step.grants() => fits(store.attempt(ticket).await?),
            (Step::Renew | Step::RenewShared, _) => {
                let renewed = store.renew(std::slice::from_ref(ticket)).await.pop();
                matches!(renewed.transpose()?, Some(Renewal::Renewed { .. }))
            }
            (Step::Note, _) => store.note(ticket, NOTE).await?,
            (Step::Break | Step::BreakShared, _) => store.break_lock(&ticket.name).await?.is_some(),
            (Step::Withdraw, _) => store.release(ticket).await? == Release::NotHeld,
            _ => store.release(ticket).await? == Release::Released,
        })
    }

    /// Returns whether a request failed.
    async fn run(self, stores: Stores, faults: SqlFaults) -> Outcome<bool> {
        let (store, sound) = (&stores.faulty, &stores.sound);
        let mine = self.ticket(1, self.step.mode())?;
        let other = self.begin(store, &mine).await?;
        faults.fail_after(self.passed, self.failure);
        let told = self.carry_out(store, &mine, other.as_ref()).await;
        let failed = !faults.take();
        match &told {
            Ok(fits) => ensure(*fits, "it returned something else")?,
            // On a busy machine a pin may not answer in time either, which is indeterminate as well.
            Err(error) => ensure(
                failed || error.outcome() == Told::Indeterminate,
                format!("{error:?}"),
            )?,
        }
        self.has_the_effect(sound, &mine, other.as_ref(), &told)
            .await?;
        // As a client does, which leaves it out where nothing can be there.
        let gone = match &told {
            Ok(_) => self.step.ends(),
            Err(error) => self.step.grants() && error.outcome() != Told::Indeterminate,
        };
        if !gone {
            repeated(SOON, || store.release(&mine)).await?;
        }
        if self.step == Step::AttemptBehindReader {
            self.expect_free(sound, Mode::Read).await?;
        }
        if let Some(other) = &other {
            // Again while the row is locked, as by a connection that is about to end.
            repeated(SOON, || store.release(other)).await?;
        }
        self.expect_free(sound, Mode::Exclusive).await?;
        Ok(failed)
    }

    /// Makes the state in which the step begins. Returns the ticket of another holder.
    async fn begin(self, store: &Store, mine: &Ticket) -> Outcome<Option<Ticket>> {
        if self.step == Step::AttemptAgain {
            let before = self.ticket(2, Mode::Exclusive)?;
            store.attempt(&before).await?;
            store.release(&before).await?;
        }
        let other = self.step.other().map(|mode| self.ticket(3, mode));
        let other = other.transpose()?;
        if let Some(held) = other.as_ref().or((!self.step.grants()).then_some(mine)) {
            let held = store.attempt(held).await?;
            ensure(matches!(held, Attempt::Granted(_)), format!("{held:?}"))?;
        }
        if self.step == Step::Withdraw {
            let waits = store.attempt(mine).await?;
            ensure(matches!(waits, Attempt::Held { .. }), format!("{waits:?}"))?;
        }
        Ok(other)
    }

    /// Another client sees what the step says that it has done, or that it has done nothing.
    async fn has_the_effect(
        self,
        sound: &Store,
        mine: &Ticket,
        other: Option<&Ticket>,
        told: &Result<bool, BackendError>,
    ) -> Outcome {
        let done = match told {
            Err(error) if error.outcome() == Told::Indeterminate => return Ok(()),
            told => told.is_ok(),
        };
        let state = sound.inspect(&mine.name).await?;
        let before = other.or((!self.step.grants()).then_some(mine));
        let after = match self.step {
            step if step.grants() && !step.waits() => Some(mine),
            Step::Release | Step::Break | Step::Unshare | Step::BreakShared => None,
            _ => before,
        };
        let note = (done && self.step == Step::Note).then(|| NOTE.to_owned());
        let expected = if done { after } else { before };
        let expected = expected.map(|ticket| (ticket.holder.to_string(), note));
        let holders = state.iter().flat_map(|state| &state.holders);
        let found: Vec<_> = holders.map(|it| (it.id.clone(), it.note.clone())).collect();
        let waiters = state.as_ref().and_then(|state| state.waiters).unwrap_or(0);
        let waits = match (done, self.step.grants()) {
            (true, _) => waiters == u32::from(self.step.waits()),
            (false, true) => waiters == 0,
            // A release that fails may have given up the place.
            (false, false) => true,
        };
        ensure(
            found.iter().eq(&expected) && waits,
            format!("{told:?}, but {state:?}"),
        )
    }

    /// Another client gets the lock, long before a lease ends.
    async fn expect_free(self, sound: &Store, mode: Mode) -> Outcome {
        let (next, asked) = (self.ticket(4, mode)?, Instant::now());
        while matches!(sound.attempt(&next).await?, Attempt::Held { .. }) {
            if asked.elapsed() > SOON {
                return Err(Failure::new("no client gets it any more"));
            }
            sleep(Duration::from_millis(100)).await;
        }
        sound.release(&next).await?;
        Ok(())
    }
}

/// Makes each request of each step fail in each way. `least`: how many trials that are; the others order the
/// failure of a request that their step does not send.
async fn all_steps<F>(
    way: &'static str,
    least: usize,
    open: impl Fn(SqlFaults) -> F + Clone + Send + Sync + 'static,
) -> Outcome
where
    F: Future<Output = Outcome<Stores>> + Send,
{
    let mut trials = Vec::new();
    for step in STEPS.into_iter().filter(|step| step.is_offered(way)) {
        for failure in FAILURES {
            let trial = |passed| Trial {
                way,
                step,
                failure,
                passed,
            };
            trials.extend((0..REQUESTS).map(trial));
        }
    }
    let run = |trial: Trial| {
        let open = open.clone();
        async move {
            let faults = SqlFaults::default();
            trial.run(open(faults.clone()).await?, faults).await
        }
    };
    let failed = run_trials(trials, TOGETHER, run).await?;
    ensure(failed >= least, format!("{failed} requests failed ({way})"))
}

pub(crate) async fn step_returns_its_true_outcome_whichever_request_fails<D: Database>() -> Outcome
{
    let server = Arc::new(D::start().await?);
    // PostgreSQL sends the fewest: a ticket takes its place with the attempt. The table is made by one of them.
    builder(&*server, "lease").connect().await?;
    for (way, least) in WAYS.into_iter().zip([80, 40]) {
        let server = Arc::clone(&server);
        all_steps(way, least, move |faults| {
            let server = Arc::clone(&server);
            async move {
                let open = || {
                    // All trials connect at once.
                    let open = builder(&*server, way).connect_timeout(PATIENCE);
                    open.poll(PollRange::new(LONG, LONG))
                };
                Ok(Stores {
                    faulty: Arc::new(open().faults(faults).connect().await?),
                    sound: Arc::new(open().connect().await?),
                    _file: None,
                })
            }
        })
        .await?;
    }
    only_rows_left(&*server).await
}

/// The same in a file, of its own for each trial.
pub(crate) async fn step_in_a_file_returns_its_true_outcome() -> Outcome {
    let open = |faults| async {
        let dir = tempfile::tempdir()?;
        let file = dir.path().join("locks.db").display().to_string();
        let open = || SqlStoreBuilder::<Sqlite>::file(&file).poll(PollRange::new(LONG, LONG));
        Ok(Stores {
            faulty: Arc::new(open().faults(faults).connect().await?),
            sound: Arc::new(open().connect().await?),
            _file: Some(dir),
        })
    };
    all_steps("lease", 96, open).await
}
