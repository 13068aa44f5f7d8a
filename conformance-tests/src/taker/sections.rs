//! Sections again and again, each of which follows the one before.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Worker;
use super::writer::SHORT;
use crate::checker::Entry;
use crate::failure::Outcome;
use crate::history::{Op, Phase, now};
use crate::sections::{Sections, Written};

/// How many tasks of a process share a client.
const TASKS: usize = 3;
/// The longest that one may take.
const LIMIT: Duration = Duration::from_secs(5);

impl Worker {
    /// Runs sections in several tasks, until `span` is over. Some are dropped in the middle.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if a task panics.
    pub(super) async fn run_sections(&self, all: &Arc<dyn Sections>, span: Duration) -> Outcome {
        let end = Instant::now() + span;
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let (worker, all) = (self.clone(), Arc::clone(all));
            tasks.spawn(async move {
                while Instant::now() < end {
                    // What became of its commit is not known then.
                    let _ = timeout(limit(), worker.section(&*all)).await;
                }
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended?;
        }
        Ok(())
    }

    async fn section(&self, all: &dyn Sections) {
        let hold = self.recorder.next_hold();
        self.note(hold, Op::Acquire, Phase::Invoke);
        let (entered, read) = match all.enter().await {
            Ok(entered) => entered,
            Err(failure) => {
                let event = self.event(now(), hold, Op::Acquire, Phase::Fail);
                self.recorder.push(event.with_note(failure.message()));
                return sleep(SHORT).await;
            }
        };
        let token = entered.token();
        let event = |op, phase| self.event(now(), hold, op, phase).with_token(token);
        self.recorder.push(event(Op::Acquire, Phase::Ok));
        // Most holds are short, but a fault at a random moment meets a long one.
        sleep(SHORT.mul_f64(5.0 * fastrand::f64().powi(3))).await;
        let begun = event(Op::Write, Phase::Invoke);
        let entry = Entry::of(&begun, read);
        self.recorder.push(begun);
        let ended = match timeout(limit(), entered.commit(&entry)).await {
            Ok(Written::Yes) => event(Op::Write, Phase::Ok),
            Ok(Written::No(why)) => event(Op::Write, Phase::Fail).with_note(why),
            Ok(Written::Unknown) | Err(_) => event(Op::Write, Phase::Info),
        };
        self.recorder.push(ended);
    }
}

/// When a section or its commit is dropped: some in the middle.
fn limit() -> Duration {
    match fastrand::u8(..8) {
        0 => SHORT.mul_f64(fastrand::f64()),
        _ => LIMIT,
    }
}
