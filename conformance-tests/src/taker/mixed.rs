//! A client that takes locks in random modes, one or two at once, and records what it sees.

use std::time::Duration;

use lockkit_core::contract::Mode;
use lockkit_core::{Lock, LockClient, MultiLock, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Worker;
use super::writer::{LONG, SHORT};
use crate::history::{Op, Phase, Recorder};

/// In the last part of the work holds end at once, so that everybody can be served.
const QUIET: Duration = Duration::from_secs(4);

/// A client of some names, in all modes that its store has. Some holds are of two names together, and some
/// writers become readers.
#[derive(Clone, Debug)]
pub struct Mixed {
    client: LockClient,
    names: Vec<String>,
    recorder: Recorder,
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
        }
    }

    /// Takes locks, looks at them twice and gives them back, until `span` is over; returns how often it had any.
    ///
    /// # Errors
    /// - [`Error`](lockkit_core::Error) if a name cannot name a lock.
    pub async fn work(&self, span: Duration) -> Result<u64> {
        let end = Instant::now() + span;
        let mut turns = 0;
        while Instant::now() < end {
            let quiet = end - Instant::now() < QUIET;
            let stay = if quiet { None } else { Some(stay()) };
            let had = match fastrand::u8(..8) {
                0 => self.two(stay).await?,
                _ => self.one(stay).await?,
            };
            turns += u64::from(had);
            if fastrand::u8(..) < 64 {
                // Now and then it comes back late, so that others meet in other orders.
                sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(turns)
    }

    async fn one(&self, stay: Option<Duration>) -> Result<bool> {
        let worker = self.worker(&self.names[fastrand::usize(..self.names.len())])?;
        let hold = self.recorder.next_hold();
        let Some(mut guard) = worker.acquire(hold).await else {
            return Ok(false);
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
                    return Ok(true);
                }
            };
            watches.spawn(worker.watch(hold, &guard));
            worker.check(hold, &guard);
        }
        pause(stay).await;
        worker.check(hold, &guard);
        worker.release(hold, guard).await;
        Ok(true)
    }

    /// Two names together, if there are two.
    async fn two(&self, stay: Option<Duration>) -> Result<bool> {
        let mut names = self.names.clone();
        fastrand::shuffle(&mut names);
        names.truncate(2);
        // The guards have this order.
        names.sort();
        let workers = names.iter().map(|name| self.worker(name));
        let workers = workers.collect::<Result<Vec<_>>>()?;
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

    /// In a random mode.
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

/// Often as long as a renewed lease may, so that holders are met by what is done to processes.
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
