//! The rounds of a case, and what each has read.

use std::ops::Range;
use std::time::Duration;

use crate::failure::Failure;
use crate::measure::{Case, Probe, Reading};
use crate::progress::Progress;
use crate::side::Side;
use crate::target::Target;

/// Some rounds of a case: in each all stores, one after the other. What would burden the machine while
/// others are measured has all of its rounds alone.
pub(crate) async fn pass(
    case: Case,
    span: Duration,
    probes: &mut [(&Target, Rounds)],
    rounds: Range<usize>,
    progress: &Progress,
) {
    let span = span.mul_f64(case.weight().unwrap_or(1.0));
    let span = span.max(case.least());
    let together = if case.burdens() { 1 } else { probes.len() };
    for probes in probes.chunks_mut(together.max(1)) {
        of_some(case, span, probes, rounds.clone(), progress).await;
    }
}

async fn of_some(
    case: Case,
    span: Duration,
    probes: &mut [(&Target, Rounds)],
    rounds: Range<usize>,
    progress: &Progress,
) {
    for (target, probe) in &mut *probes {
        progress.say(format!("{}: {} starts", target.label, case.name()));
        probe.wake().await;
        if case.comes_again() {
            probe.warm_up(span / 2).await;
        }
    }
    for round in rounds {
        for (target, probe) in &mut *probes {
            progress.say(format!("{}: {}", target.label, case.name()));
            probe.run(Side::BOTH[round % 2], span).await;
        }
        progress.step();
    }
    for (_, probe) in probes {
        probe.probe.rest();
    }
}

/// A probe and what it has read.
pub(crate) struct Rounds {
    pub(crate) probe: Box<dyn Probe>,
    pub(crate) values: [Vec<(Reading, Vec<f64>)>; 2],
    pub(crate) failed: Option<Failure>,
}

impl Rounds {
    pub(crate) const fn of(probe: Box<dyn Probe>) -> Self {
        Self {
            probe,
            values: [Vec::new(), Vec::new()],
            failed: None,
        }
    }

    async fn run(&mut self, first: Side, span: Duration) {
        if self.failed.is_some() {
            return;
        }
        match self.probe.round(first, span).await {
            Ok(both) => {
                for (values, readings) in self.values.iter_mut().zip(both) {
                    for reading in readings {
                        add(values, reading);
                    }
                }
            }
            Err(error) => self.failed = Some(error),
        }
    }

    async fn wake(&mut self) {
        if self.failed.is_none() {
            self.failed = self.probe.wake().await.err();
        }
    }

    /// A round that is forgotten.
    async fn warm_up(&mut self, span: Duration) {
        let before = self.values.clone();
        self.probe.set_cold(true);
        self.run(Side::Lock, span).await;
        self.probe.set_cold(false);
        self.values = before;
    }
}

fn add(values: &mut Vec<(Reading, Vec<f64>)>, reading: Reading) {
    match values
        .iter_mut()
        .find(|(known, _)| known.what == reading.what)
    {
        Some((_, values)) => values.push(reading.value),
        None => values.push((reading, vec![reading.value])),
    }
}
