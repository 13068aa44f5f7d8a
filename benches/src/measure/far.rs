//! One task whose store is far away: how many round trips a cycle is.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::cycle::{Cycle, Way, name};
use super::{Probe, Reading};
use crate::failure::{Failure, Outcome};
use crate::report::Unit;
use crate::side::Side;
use crate::target::{self, Target};

pub(super) struct Far {
    cycles: [Cycle; 2],
    counter: Box<dyn Fn() -> u64 + Send + Sync>,
    trip: Duration,
}

impl Far {
    pub(super) fn new(target: &Target) -> Outcome<Self> {
        let far = target.far.clone();
        let far = far.ok_or_else(|| Failure::new("there is no longer way"))?;
        let lock = Way::Lock(far.client.clone()).named(name(target, Side::Lock, "far"))?;
        let bare = Way::Bare(far.bare.clone()).named(name(target, Side::Bare, "far"))?;
        Ok(Self {
            cycles: [lock, bare],
            trip: far.delay * 2,
            counter: Box::new(move || target::Far::trips(&far)),
        })
    }
}

#[async_trait]
impl Probe for Far {
    async fn measure(&mut self, side: Side, span: Duration) -> Outcome<Vec<Reading>> {
        let cycle = &self.cycles[side as usize];
        let (before, start) = ((self.counter)(), Instant::now());
        let mut cycles = 0_u32;
        while start.elapsed() < span || cycles < 10 {
            cycle.run().await?;
            cycles += 1;
        }
        let took = start.elapsed().as_secs_f64() / f64::from(cycles);
        let trips = u32::try_from((self.counter)() - before)?;
        Ok(vec![
            Reading::new(
                "round trips of a cycle, by time",
                Unit::Trips,
                took / self.trip.as_secs_f64(),
            ),
            Reading::new(
                "round trips of a cycle, counted",
                Unit::Trips,
                f64::from(trips) / f64::from(cycles),
            ),
        ])
    }
}
