//! Several want the same thing for a while.

use std::time::Duration;

use conformance_tests::Outcome;
use conformance_tests::task::spawn;
use tokio::time::Instant;

/// Somebody who takes something and gives it back.
pub(crate) trait Contender: Send + 'static {
    fn turn(&mut self) -> impl Future<Output = Outcome> + Send;
}

impl Contender for lockkit_core::Lock {
    async fn turn(&mut self) -> Outcome {
        Ok(self.acquire().await?.release().await?)
    }
}

/// How many turns each had.
#[derive(Debug)]
pub(crate) struct Turns {
    counts: Vec<u64>,
    span: Duration,
}

impl Turns {
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(crate) fn per_second(&self) -> f64 {
        float(self.total()) / self.span.as_secs_f64()
    }

    /// Jain's index: 1 if all had the same.
    pub(crate) fn fairness(&self) -> f64 {
        let squares: u64 = self.counts.iter().map(|count| count * count).sum();
        let count = float(u64::try_from(self.counts.len()).unwrap_or(u64::MAX));
        float(self.total()).powi(2) / (count * float(squares))
    }
}

pub(crate) fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// All take turns until `span` is over.
pub(crate) async fn contend<C: Contender>(contenders: Vec<C>, span: Duration) -> Outcome<Turns> {
    let start = Instant::now();
    let end = start + span;
    let take = |mut contender: C| async move {
        let mut turns = 0;
        while Instant::now() < end {
            contender.turn().await?;
            turns += 1;
        }
        Outcome::Ok(turns)
    };
    let tasks = contenders.into_iter().map(|it| spawn(take(it)));
    let mut counts = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        counts.push(task.soon().await??);
    }
    Ok(Turns {
        counts,
        span: start.elapsed(),
    })
}
