//! Clients that contend for a lock for a while: what the speed tests of all stores count.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Outcome;
use crate::figures::OPTIMISED;
use crate::task::spawn;

/// For how long one crowd is watched.
pub const SPAN: Duration = Duration::from_secs(if OPTIMISED { 4 } else { 2 });

/// Somebody who takes something and gives it back.
pub trait Contender: Send + 'static {
    /// Takes it, and gives it back at once.
    ///
    /// # Errors
    /// It could not be had, or not be given back.
    fn turn(&mut self) -> impl Future<Output = Outcome> + Send;
}

impl Contender for lockkit_core::Lock {
    async fn turn(&mut self) -> Outcome {
        Ok(self.acquire().await?.release().await?)
    }
}

/// How many turns each had.
#[derive(Debug)]
pub struct Turns {
    counts: Vec<u64>,
    span: Duration,
}

impl Turns {
    fn and(mut self, more: &Self) -> Self {
        self.span += more.span;
        for (count, more) in self.counts.iter_mut().zip(&more.counts) {
            *count += more;
        }
        self
    }

    /// The turns of all of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long it took.
    #[must_use]
    pub const fn span(&self) -> Duration {
        self.span
    }

    /// Turns in a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        float(self.total()) / self.span.as_secs_f64()
    }

    /// How many round trips one turn takes, if they take `trip` each.
    #[must_use]
    pub fn trips_each(&self, trip: Duration) -> f64 {
        1.0 / (self.per_second() * trip.as_secs_f64())
    }

    /// Jain's index: 1 if all had the same.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        let squares: u64 = self.counts.iter().map(|count| count * count).sum();
        let count = float(u64::try_from(self.counts.len()).unwrap_or(u64::MAX));
        float(self.total()).powi(2) / (count * float(squares))
    }
}

/// Counts how often something comes to somebody else. Who takes it again and again while the others
/// sleep hands nothing over.
#[derive(Debug, Default)]
pub struct HandOffs {
    last: AtomicUsize,
    count: AtomicU64,
}

impl HandOffs {
    /// The number of the current holder, or 0.
    pub fn note(&self, number: usize) {
        if self.last.swap(number, Ordering::Relaxed) != number {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Those of a second, if these were all turns.
    #[must_use]
    pub fn per_second(&self, turns: &Turns) -> f64 {
        float(self.count.load(Ordering::Relaxed)) / turns.span().as_secs_f64()
    }
}

/// A count for a ratio.
#[must_use]
pub fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// All take turns until `span` is over.
///
/// # Errors
/// A turn failed.
pub async fn contend<C: Contender>(contenders: Vec<C>, span: Duration) -> Outcome<Turns> {
    Ok(round(contenders, span).await?.0)
}

/// As [`contend`], and gives them back.
async fn round<C: Contender>(contenders: Vec<C>, span: Duration) -> Outcome<(Turns, Vec<C>)> {
    let start = Instant::now();
    let end = start + span;
    let take = |mut contender: C| async move {
        let mut turns = 0;
        while Instant::now() < end {
            contender.turn().await?;
            turns += 1;
        }
        Outcome::Ok((turns, contender))
    };
    let tasks = contenders.into_iter().map(|it| spawn(take(it)));
    let (mut counts, mut back) = (Vec::new(), Vec::new());
    for task in tasks.collect::<Vec<_>>() {
        let (turns, contender) = task.soon().await??;
        counts.push(turns);
        back.push(contender);
    }
    let span = start.elapsed();
    Ok((Turns { counts, span }, back))
}

/// Two crowds in turns, each for [`SPAN`] in all, so that what else the machine does meets both.
///
/// # Errors
/// A turn failed.
pub async fn compare<A, B>(one: Vec<A>, other: Vec<B>) -> Outcome<(Turns, Turns)>
where
    A: Contender,
    B: Contender,
{
    const ROUND: Duration = SPAN.checked_div(4).unwrap();
    let (mut ones, mut one) = round(one, ROUND).await?;
    let (mut others, mut other) = round(other, ROUND).await?;
    for _ in 1..4 {
        let (turns, back) = round(one, ROUND).await?;
        (ones, one) = (ones.and(&turns), back);
        let (turns, back) = round(other, ROUND).await?;
        (others, other) = (others.and(&turns), back);
    }
    Ok((ones, others))
}
