//! Contenders that update one number: in sections of a lock, and by the store's own means.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hdrhistogram::Histogram;

use super::crowd::Crowd;
use super::cycle::name;
use super::{Probe, Reading};
use crate::counter::{Control, Counter};
use crate::failure::{Failure, Outcome};
use crate::latency::at;
use crate::report::Unit;
use crate::side::Side;
use crate::target::{Far, Target};
use crate::worker::{Program, Role, Start};

pub(super) struct Sections {
    crowd: Crowd,
    contenders: usize,
    /// The numbers, over a connection without a delay.
    counters: Vec<Box<dyn Counter>>,
    far: Option<Arc<Far>>,
}

/// In how many processes the contenders are.
pub(super) fn processes(contenders: usize) -> usize {
    contenders.min(4)
}

/// `None` if the store has no sections, does not exclude in this way, or is not far away.
pub(super) fn open(
    target: &Target,
    program: &Program,
    control: Control,
    contenders: usize,
    is_far: bool,
) -> Outcome<Option<Box<dyn Probe>>> {
    let far = match &target.far {
        Some(far) if is_far => Some(Arc::clone(far)),
        None if is_far => return Ok(None),
        _ => None,
    };
    let way = if is_far { "far-" } else { "" };
    let names = Side::BOTH.map(|side| {
        let kind = format!("{way}{control:?}-{contenders}").to_lowercase();
        name(target, side, kind)
    });
    let counters = names.iter().filter_map(|name| target.bare.counter(name));
    let counters: Vec<_> = counters.collect();
    let mut controls = counters.iter().flat_map(|counter| counter.controls());
    if !controls.any(|it| *it == control) {
        return Ok(None);
    }
    let url = far.as_ref().map_or(&target.url, |far| &far.url);
    let start = |side, first, count| Start {
        url: url.clone(),
        side,
        name: names[side as usize].clone(),
        role: Role::Updates {
            first,
            count,
            control,
        },
    };
    let sizes = [contenders, processes(contenders)];
    Ok(Some(Box::new(Sections {
        crowd: Crowd::of([program; 2], sizes, true, start)?,
        contenders,
        counters,
        far,
    })))
}

impl Sections {
    fn trips(&self) -> u64 {
        self.far.as_ref().map_or(0, |far| far.trips())
    }
}

#[async_trait]
impl Probe for Sections {
    async fn measure(&mut self, side: Side, span: Duration) -> Outcome<Vec<Reading>> {
        let before = self.counters[side as usize].read().await?;
        let trips = self.trips();
        let round = self.crowd.turns(side, span).await?;
        let trips = self.trips() - trips;
        let written = self.counters[side as usize].read().await? - before;
        let updates = round.turns();
        if written != updates {
            let message = format!("{updates} updates have added {written} to the number");
            return Err(Failure::new(message));
        }
        let mut readings = vec![
            Reading::new("updates", Unit::PerSecond, round.rate),
            Reading::new("median", Unit::Seconds, at(&round.waits, 0.5)),
            Reading::new("p99", Unit::Seconds, round.p99()),
        ];
        if self.contenders > 1 {
            readings.push(self.crowd.fairness(side));
        }
        if self.far.is_some() {
            let each = f64::from(u32::try_from(trips)?) / f64::from(u32::try_from(updates.max(1))?);
            let what = "round trips of an update, counted";
            readings.push(Reading::new(what, Unit::Trips, each));
        }
        Ok(readings)
    }

    async fn wake(&mut self) -> Outcome {
        for counter in &self.counters {
            counter.create().await?;
        }
        self.crowd.wake().await
    }

    fn rest(&mut self) {
        self.crowd.rest();
    }

    fn set_cold(&mut self, cold: bool) {
        self.crowd.set_cold(cold);
    }

    fn latencies(&self, side: Side) -> Option<&Histogram<u64>> {
        self.crowd.latencies(side)
    }

    fn note(&self) -> Option<String> {
        self.crowd.note()
    }
}
