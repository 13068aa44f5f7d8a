//! Several contenders for one lock, in one process or more.

use std::time::Duration;

use async_trait::async_trait;
use hdrhistogram::Histogram;
use lockkit::contract::Mode;

use super::cycle::name;
use super::{Probe, Reading};
use crate::failure::Outcome;
use crate::latency::{at, histogram};
use crate::report::Unit;
use crate::side::Side;
use crate::target::Target;
use crate::turns::hand_offs;
use crate::worker::{Answer, Order, Program, Role, Start, Worker, unexpected};

pub(super) struct Crowd {
    programs: [Program; 2],
    starts: [Vec<Start>; 2],
    workers: [Vec<Worker>; 2],
    waits: [Histogram<u64>; 2],
    /// The turns of each contender, over all rounds.
    turns: [Vec<u64>; 2],
    /// Whether no other holds while one holds.
    excludes: bool,
    cold: bool,
}

/// One round of one side.
pub(super) struct Round {
    /// The turns of each contender.
    counts: Vec<u64>,
    /// Turns in a second.
    pub(super) rate: f64,
    /// Hand-offs in a second.
    hand_offs: f64,
    pub(super) waits: Histogram<u64>,
}

impl Round {
    /// The turns of all.
    pub(super) fn turns(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn p99(&self) -> f64 {
        at(&self.waits, 0.99)
    }
}

impl Crowd {
    pub(super) fn new(
        target: &Target,
        url: &str,
        programs: [&Program; 2],
        [contenders, processes]: [usize; 2],
        mode: Mode,
    ) -> Outcome<Self> {
        let kind = match mode {
            Mode::Exclusive => "crowd",
            Mode::Read => "readers",
            _ => "permits",
        };
        let names =
            Side::BOTH.map(|side| name(target, side, format!("{kind}-{contenders}-{processes}")));
        let start = |side, first, count| Start {
            url: url.to_owned(),
            // The lock of another library is compared with ours.
            side: if target.peer.is_some() {
                Side::Lock
            } else {
                side
            },
            name: names[side as usize].clone(),
            role: Role::Crowd { first, count, mode },
        };
        let excludes = mode.is_exclusive();
        Self::of(programs, [contenders, processes], excludes, start)
    }

    /// Contenders that are started with the number of the first and how many there are in a process.
    pub(super) fn of(
        programs: [&Program; 2],
        [contenders, processes]: [usize; 2],
        excludes: bool,
        start: impl Fn(Side, usize, usize) -> Start,
    ) -> Outcome<Self> {
        let starts = Side::BOTH.map(|side| {
            let start = |number| {
                let first = contenders * number / processes;
                start(side, first, contenders * (number + 1) / processes - first)
            };
            (0..processes).map(start).collect()
        });
        Ok(Self {
            programs: programs.map(Clone::clone),
            starts,
            workers: [Vec::new(), Vec::new()],
            waits: [histogram()?, histogram()?],
            turns: [vec![0; contenders], vec![0; contenders]],
            excludes,
            cold: false,
        })
    }

    /// All of a side take turns for this time.
    pub(super) async fn turns(&mut self, side: Side, span: Duration) -> Outcome<Round> {
        let workers = &mut self.workers[side as usize];
        for worker in &mut *workers {
            worker.say(&Order::Turns { span }).await?;
        }
        let (mut rate, mut all) = (0.0, Vec::new());
        let (mut turns, mut longest) = (Vec::new(), Duration::ZERO);
        let mut waits = histogram()?;
        for worker in workers {
            let answer = worker.hear().await?;
            let Answer::Turns {
                counts,
                took,
                waits: seen,
                taken,
            } = answer
            else {
                return Err(unexpected(&answer));
            };
            rate += sum(&counts) / took.as_secs_f64();
            all.extend(counts);
            turns.extend(taken);
            longest = longest.max(took);
            for (value, count) in seen {
                waits.saturating_record_n(value, count);
            }
        }
        if !self.cold {
            for (total, count) in self.turns[side as usize].iter_mut().zip(&all) {
                *total += count;
            }
            self.waits[side as usize].add(&waits)?;
        }
        let passed = u32::try_from(hand_offs(&mut turns))?;
        Ok(Round {
            counts: all,
            rate,
            hand_offs: f64::from(passed) / longest.as_secs_f64(),
            waits,
        })
    }

    /// Over all rounds so far: one round has too few turns to tell favour from chance.
    pub(super) fn fairness(&self, side: Side) -> Reading {
        Reading::new("fairness", Unit::Jain, jain(&self.turns[side as usize]))
    }
}

#[async_trait]
impl Probe for Crowd {
    async fn measure(&mut self, side: Side, span: Duration) -> Outcome<Vec<Reading>> {
        let round = self.turns(side, span).await?;
        if round.counts.len() == 1 {
            return Ok(vec![Reading::new("cycles", Unit::PerSecond, round.rate)]);
        }
        let mut readings = Vec::new();
        if self.excludes {
            readings.push(Reading::new("hand-offs", Unit::PerSecond, round.hand_offs));
        }
        readings.extend([
            Reading::new("turns", Unit::PerSecond, round.rate),
            Reading::new("p99 wait", Unit::Seconds, round.p99()),
            self.fairness(side),
        ]);
        Ok(readings)
    }

    async fn wake(&mut self) -> Outcome {
        for side in Side::BOTH {
            for start in &self.starts[side as usize] {
                let worker = Worker::start(&self.programs[side as usize], start);
                self.workers[side as usize].push(worker.await?);
            }
        }
        Ok(())
    }

    fn rest(&mut self) {
        self.workers = [Vec::new(), Vec::new()];
    }

    fn set_cold(&mut self, cold: bool) {
        self.cold = cold;
    }

    fn latencies(&self, side: Side) -> Option<&Histogram<u64>> {
        Some(&self.waits[side as usize])
    }

    fn note(&self) -> Option<String> {
        let turns = &self.turns[Side::Lock as usize];
        let few = sum(turns) < 10.0 * sum(&vec![1; turns.len()]);
        few.then(|| {
            "fewer than ten turns each: the fairness says little, measure longer".to_owned()
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "no run has 2^52 turns")]
fn sum(counts: &[u64]) -> f64 {
    counts.iter().sum::<u64>() as f64
}

/// Jain's index: 1 if all had the same, 1/n if one had all.
fn jain(counts: &[u64]) -> f64 {
    let squares: Vec<u64> = counts.iter().map(|count| count * count).collect();
    let ones = vec![1; counts.len()];
    if sum(counts) == 0.0 {
        return 0.0;
    }
    sum(counts).powi(2) / (sum(&ones) * sum(&squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_goes_from_one_nth_to_one() {
        assert_eq!(jain(&[7, 7, 7, 7]), 1.0);
        assert_eq!(jain(&[9, 0, 0, 0]), 0.25);
        assert_eq!(jain(&[0, 0]), 0.0);
    }
}
