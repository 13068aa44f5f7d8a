//! Steps of several requests, each of which fails in each way: the outcome is that of the whole step, and
//! nothing is left that keeps others out.

use std::sync::Arc;

use conformance_tests::Outcome;
use conformance_tests::ensure;
use conformance_tests::steps::Call::{Adopt, Attempt, Break, Note, Release, Renew};
use conformance_tests::steps::{PERMIT, Scene, Step, Stores, WRITER, step};
use conformance_tests::task::{PATIENCE, run_trials};
use lockkit_core::PollRange;
use lockkit_core::contract::{DistributedLock, Mode};
use lockkit_sql::{SqlFailure, SqlFaults, SqlStoreBuilder, Sqlite};
use tempfile::TempDir;

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

const STEPS: [Step; 17] = [
    step("Attempt", Attempt),
    step("AttemptAgain", Attempt).used(),
    // It keeps later ones out.
    step("AttemptBehindReader", Attempt).behind(&[Mode::Read]),
    step("AttemptBehindWriter", Attempt).behind(WRITER),
    step("Withdraw", Release).behind(WRITER),
    step("Renew", Renew),
    step("Release", Release),
    step("Break", Break),
    step("Note", Note),
    step("Share", Attempt).mode(Mode::Read),
    step("ShareBehindWriter", Attempt)
        .mode(Mode::Read)
        .behind(WRITER),
    step("PermitBehindPermit", Attempt)
        .mode(PERMIT)
        .behind(&[PERMIT]),
    step("RenewShared", Renew).mode(Mode::Read),
    step("Unshare", Release).mode(Mode::Read),
    step("BreakShared", Break).mode(Mode::Read),
    step("Adopt", Adopt).behind(WRITER),
    step("AdoptShared", Adopt)
        .mode(Mode::Read)
        .behind(&[Mode::Read]),
];

/// Pinned holds are exclusive and stay with their tickets.
fn is_offered(step: Step, way: &str) -> bool {
    way != "pin" || (step.is_exclusive() && step.call() != Adopt)
}

type Store = Arc<dyn DistributedLock>;

/// The store whose requests fail, and one whose do not.
struct Opened {
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
    /// Returns whether a request failed.
    async fn run(self, opened: Opened, faults: SqlFaults) -> Outcome<bool> {
        let stores = Stores {
            faulty: &*opened.faulty,
            sound: &*opened.sound,
            others: &*opened.faulty,
            // Also while the row is locked, as by a connection that is about to end.
            patience: SOON,
            // Long before a lease ends.
            kept_out: SOON,
        };
        // No lease ends: what is left of a step keeps others out.
        let scene = Scene::new(self.step, &format!("{} {self:?}", self.way), LONG)?;
        let arm = || faults.fail_after(self.passed, self.failure);
        scene.run(&stores, arm, || !faults.take()).await
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
    F: Future<Output = Outcome<Opened>> + Send,
{
    let mut trials = Vec::new();
    for step in STEPS.into_iter().filter(|step| is_offered(*step, way)) {
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
                Ok(Opened {
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
        Ok(Opened {
            faulty: Arc::new(open().faults(faults).connect().await?),
            sound: Arc::new(open().connect().await?),
            _file: Some(dir),
        })
    };
    all_steps("lease", 96, open).await
}
