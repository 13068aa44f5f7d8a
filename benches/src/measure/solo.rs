//! One task without contention, at a rate that leaves three quarters of the time free.

use std::time::Duration;

use async_trait::async_trait;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cycle::{Cycle, Way, name};
use super::{Probe, Reading};
use crate::failure::{Failure, Outcome};
use crate::latency::{at, at_a_fixed_rate, histogram, record};
use crate::report::Unit;
use crate::side::Side;
use crate::target::Target;

/// Cycles that tell how long one takes.
const TRIAL: usize = 51;

pub(super) struct Solo {
    cycles: [Cycle; 2],
    interval: Option<Duration>,
    seen: [Histogram<u64>; 2],
    cold: bool,
}

impl Solo {
    pub(super) fn new(target: &Target) -> Outcome<Self> {
        Self::of(|side| Way::to(target, side).named(name(target, side, "solo")))
    }

    /// With four names that are taken together.
    pub(super) fn with_four_names(target: &Target) -> Outcome<Self> {
        Self::of(|side| Way::to(target, side).with_four_names(&name(target, side, "four")))
    }

    fn of(cycle: impl Fn(Side) -> Outcome<Cycle>) -> Outcome<Self> {
        Ok(Self {
            cycles: [cycle(Side::Lock)?, cycle(Side::Bare)?],
            interval: None,
            seen: [histogram()?, histogram()?],
            cold: false,
        })
    }

    /// Four times what a cycle of the lock takes: the same for both sides.
    async fn interval(&mut self) -> Outcome<Duration> {
        if let Some(interval) = self.interval {
            return Ok(interval);
        }
        let mut took = histogram()?;
        for _ in 0..TRIAL {
            let start = Instant::now();
            self.cycles[Side::Lock as usize].run().await?;
            record(&mut took, start.elapsed());
        }
        let interval = Duration::from_secs_f64(at(&took, 0.5) * 2.0);
        self.interval = Some(interval);
        Ok(interval)
    }
}

#[async_trait]
impl Probe for Solo {
    async fn measure(&mut self, side: Side, span: Duration) -> Outcome<Vec<Reading>> {
        let interval = self.interval().await?;
        let cycle = self.cycles[side as usize].clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut seen = histogram()?;
            at_a_fixed_rate(interval, span, &mut seen, || cycle.run()).await?;
            Outcome::Ok(seen)
        });
        let seen = tasks.join_next().await;
        let seen = seen.ok_or_else(|| Failure::new("the task is gone"))???;
        if !self.cold {
            self.seen[side as usize].add(&seen)?;
        }
        Ok(vec![
            Reading::new("median cycle", Unit::Seconds, at(&seen, 0.5)),
            Reading::new("p99 cycle", Unit::Seconds, at(&seen, 0.99)),
        ])
    }

    fn set_cold(&mut self, cold: bool) {
        self.cold = cold;
    }

    fn latencies(&self, side: Side) -> Option<&Histogram<u64>> {
        Some(&self.seen[side as usize])
    }

    fn note(&self) -> Option<String> {
        let interval = self.interval?;
        Some(format!("one cycle every {interval:.1?} on both sides"))
    }
}
