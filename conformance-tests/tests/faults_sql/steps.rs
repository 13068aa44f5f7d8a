//! Steps of several requests, each of which fails in each way: the outcome is that of the whole step, and
//! nothing is left that keeps others out.

use std::sync::Arc;

use conformance_tests::task::spawn;
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::contract::{Attempt, DistributedLock, Ticket};
use lockkit_core::{BackendError, ClientId, HolderId, LockName, Outcome as Told};
use lockkit_sql::{SqlFailure, SqlFaults};
use tokio::time::{Instant, sleep};

use crate::world::{Database, TTL, WAYS, builder, only_rows_left};

const FAILURES: [SqlFailure; 4] = [
    SqlFailure::Refused,
    SqlFailure::Unavailable,
    SqlFailure::RequestLost,
    SqlFailure::ReplyLost,
];

/// More than the requests of any step without contention.
const REQUESTS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Attempt,
    /// Of a lock that was released before.
    AttemptAgain,
    Renew,
    Release,
    Break,
}

const STEPS: [Step; 5] = [
    Step::Attempt,
    Step::AttemptAgain,
    Step::Renew,
    Step::Release,
    Step::Break,
];

type Store = Arc<dyn DistributedLock>;

/// Runs a step, and returns its failure.
async fn carry_out(step: Step, store: &Store, ticket: &Ticket) -> Result<(), BackendError> {
    match step {
        Step::Attempt | Step::AttemptAgain => store.attempt(ticket).await.map(drop),
        Step::Renew => {
            let answers = store.renew(std::slice::from_ref(ticket)).await;
            answers.into_iter().try_for_each(|answer| answer.map(drop))
        }
        Step::Release => store.release(ticket).await.map(drop),
        Step::Break => store.break_lock(&ticket.name).await.map(drop),
    }
}

/// Releases as a client does: again while the row is locked, as by a connection that is about to end.
async fn release(store: &Store, ticket: &Ticket) -> Outcome {
    let asked = Instant::now();
    while let Err(error) = store.release(ticket).await {
        if error.outcome() == Told::Rejected || asked.elapsed() > TTL * 2 {
            return Err(error.into());
        }
        sleep(TTL / 20).await;
    }
    Ok(())
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
    async fn run<D: Database>(self, server: Arc<D>) -> Outcome {
        let faults = SqlFaults::default();
        let store = builder(&*server, self.way).faults(faults.clone()).connect();
        let store: Store = Arc::new(store.await?);
        let other: Store = Arc::new(builder(&*server, self.way).connect().await?);
        let name = LockName::new(format!("{self:?}"))?;
        let ticket = |n| Ticket::new(name.clone(), HolderId::new(ClientId::random(), n), TTL);
        let mine = ticket(1);
        if self.step == Step::AttemptAgain {
            let before = ticket(2);
            store.attempt(&before).await?;
            store.release(&before).await?;
        } else if self.step != Step::Attempt {
            store.attempt(&mine).await?;
        }
        faults.fail_after(self.passed, self.failure);
        let answer = carry_out(self.step, &store, &mine).await;
        let step_failed = !faults.take();
        let attempted = matches!(self.step, Step::Attempt | Step::AttemptAgain);
        if let Err(error) = &answer {
            // On a busy machine a pin may not answer in time either, which is indeterminate as well.
            if error.outcome() != Told::Indeterminate {
                ensure(step_failed, format!("{self:?}: {error:?}"))?;
                let held = other.inspect(&name).await?.is_some();
                ensure(
                    held != attempted,
                    format!("{self:?}: {error:?} had an effect"),
                )?;
            }
        }
        // As a client does, which leaves it out where nothing can be there.
        let rejected = answer.is_err_and(|error| error.outcome() == Told::Rejected);
        if attempted && !rejected {
            release(&store, &mine).await?;
        }
        let (next, asked) = (ticket(3), Instant::now());
        while matches!(other.attempt(&next).await?, Attempt::Held { .. }) {
            if asked.elapsed() > TTL * 2 {
                return Err(Failure::new(format!(
                    "{self:?}: no client gets it any more"
                )));
            }
            sleep(TTL / 20).await;
        }
        other.release(&next).await?;
        Ok(())
    }
}

pub(crate) async fn step_returns_its_true_outcome_whichever_request_fails<D: Database>() -> Outcome
{
    let server = Arc::new(D::start().await?);
    // The table is made by one of them.
    builder(&*server, "lease").connect().await?;
    for way in WAYS {
        let mut trials = Vec::new();
        for step in STEPS {
            for failure in FAILURES {
                for passed in 0..REQUESTS {
                    let trial = Trial {
                        way,
                        step,
                        failure,
                        passed,
                    };
                    trials.push(spawn(trial.run(Arc::clone(&server))));
                }
            }
        }
        for trial in trials {
            trial.soon().await??;
        }
    }
    only_rows_left(&*server).await
}
