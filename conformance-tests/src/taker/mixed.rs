//! A client that takes locks in random modes, one or two at once, and records what it sees.

use std::time::Duration;

use lockkit_core::contract::Mode;
use lockkit_core::{Lock, LockClient, MultiLock, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Worker;
use super::writer::{LONG, SHORT};
use crate::history::{Op, Phase, Recorder};

/// How long it stays with a mode. A change at each turn would make all wait for each other.
const MODE: Duration = Duration::from_millis(100);
/// In the last part of the work all holds are short, so that everybody can be served.
const QUIET: Duration = Duration::from_secs(4);

/// A client of some names, in all modes that its store has. Some holds are of two names together, and some
/// writers become readers.
#[derive(Clone, Debug)]
pub struct Mixed {
    client: LockClient,
    names: Vec<String>,
    recorder: Recorder,
    with_long_holds: bool,
}

impl Mixed {
    /// Works on `names` as `client` and tells `recorder`.
    #[must_use]
    pub fn new(client: LockClient, names: &[impl AsRef<str>], recorder: Recorder) -> Self {
        let names = names.iter().map(|name| name.as_ref().to_owned());
        Self {
            client,
            names: names.collect(),
            recorder,
            with_long_holds: false,
        }
    }

    /// Makes some holds as long as a renewed lease may be, so that what is done to processes meets holders;
    /// but none in the last four seconds.
    #[must_use]
    pub const fn with_long_holds(mut self) -> Self {
        self.with_long_holds = true;
        self
    }

    /// Takes locks, looks at them twice and gives them back, until `span` is over; returns how often it had any.
    ///
    /// # Errors
    /// - [`Error`](lockkit_core::Error) if a name cannot name a lock.
    pub async fn work(&self, span: Duration) -> Result<u64> {
        let end = Instant::now() + span;
        let mut turns = 0;
        while Instant::now() < end {
            let workers = self.workers()?;
            let change = end.min(Instant::now() + MODE);
            while Instant::now() < change {
                let long = self.with_long_holds && end - Instant::now() > QUIET;
                let stay = if long { Some(stay()) } else { None };
                let had = match &workers[..] {
                    [worker] => self.one(worker, stay).await,
                    workers => self.all(workers, stay).await?,
                };
                turns += u64::from(had);
                if fastrand::u8(..) < 64 {
                    // Now and then it comes back late, so that others meet in other orders.
                    sleep(Duration::from_millis(1)).await;
                }
            }
        }
        Ok(turns)
    }

    async fn one(&self, worker: &Worker, stay: Option<Duration>) -> bool {
        let hold = self.recorder.next_hold();
        let Some(mut guard) = worker.acquire(hold).await else {
            return false;
        };
        // They end with the turn: a released guard reports no loss.
        let mut watches = JoinSet::new();
        watches.spawn(worker.watch(hold, &guard));
        worker.check(hold, &guard);
        if worker.lock.mode() == Mode::Write && fastrand::bool() {
            guard = match guard.downgrade().await {
                Ok(reader) => reader,
                Err(error) => {
                    worker.lost(hold, &error);
                    return true;
                }
            };
            watches.spawn(worker.watch(hold, &guard));
            worker.check(hold, &guard);
        }
        pause(stay).await;
        worker.check(hold, &guard);
        worker.release(hold, guard).await;
        true
    }

    /// All names together.
    async fn all(&self, workers: &[Worker], stay: Option<Duration>) -> Result<bool> {
        let multi = MultiLock::new(workers.iter().map(|worker| worker.lock.clone()))?;
        let asked: Vec<_> = workers
            .iter()
            .map(|worker| (worker, self.recorder.next_hold()))
            .collect();
        for (worker, hold) in &asked {
            worker.note(*hold, Op::Acquire, Phase::Invoke);
        }
        let held = match multi.acquire().await {
            Ok(held) => held,
            Err(error) => {
                for (worker, hold) in &asked {
                    worker.refused(*hold, &error);
                }
                return Ok(false);
            }
        };
        let mut watches = JoinSet::new();
        let each = || asked.iter().zip(held.guards());
        for ((worker, hold), guard) in each() {
            worker.granted(*hold, guard);
            watches.spawn(worker.watch(*hold, guard));
            worker.check(*hold, guard);
        }
        pause(stay).await;
        for ((worker, hold), guard) in each() {
            worker.check(*hold, guard);
            worker.note(*hold, Op::Release, Phase::Invoke);
        }
        let released = held.release().await;
        for (worker, hold) in &asked {
            worker.released(*hold, &released);
        }
        Ok(true)
    }

    /// Of one name or of two, in random modes.
    fn workers(&self) -> Result<Vec<Worker>> {
        let mut names = self.names.clone();
        fastrand::shuffle(&mut names);
        names.truncate(if fastrand::u8(..8) == 0 { 2 } else { 1 });
        // The guards of several have this order.
        names.sort();
        names.iter().map(|name| self.worker(name)).collect()
    }

    fn worker(&self, name: &str) -> Result<Worker> {
        let exclusive = self.client.lock(name)?;
        let lock: Lock = match (fastrand::u32(..6), self.client.rw_lock(name)) {
            // The store has no other modes.
            (_, Err(_)) | (0, _) => exclusive,
            (1, Ok(both)) => both.write(),
            (2 | 3, Ok(both)) => both.read(),
            (of, Ok(_)) => self.client.semaphore(name, of - 2)?,
        };
        Ok(Worker::new(lock, self.recorder.clone()))
    }
}

/// Long or short.
fn stay() -> Duration {
    let longest = if fastrand::u8(..4) == 0 { LONG } else { SHORT };
    longest.mul_f64(fastrand::f64())
}

async fn pause(stay: Option<Duration>) {
    match stay {
        Some(stay) => sleep(stay).await,
        None => tokio::task::yield_now().await,
    }
}
