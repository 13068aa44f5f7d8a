//! Many tasks of one program, each with its own names.

use std::time::Duration;

use async_trait::async_trait;
use tokio::task::{JoinSet, consume_budget};
use tokio::time::Instant;

use super::cycle::{Way, name};
use super::{Probe, Reading};
use crate::failure::Outcome;
use crate::report::Unit;
use crate::side::Side;
use crate::target::Target;

pub(super) struct Tasks {
    ways: [Way; 2],
    /// For each side and task, its names.
    names: [Vec<Vec<String>>; 2],
}

impl Tasks {
    /// `count` tasks, each with a name of its own or with its part of `names`.
    pub(super) fn new(target: &Target, count: usize, names: Option<usize>) -> Self {
        let of = |side| {
            let each = |task| {
                let own = (task..names.unwrap_or(count)).step_by(count);
                own.map(|number| name(target, side, number)).collect()
            };
            (0..count).map(each).collect()
        };
        Self {
            ways: Side::BOTH.map(|side| Way::to(target, side)),
            names: Side::BOTH.map(of),
        }
    }
}

#[async_trait]
impl Probe for Tasks {
    async fn measure(&mut self, side: Side, span: Duration) -> Outcome<Vec<Reading>> {
        let way = &self.ways[side as usize];
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for names in &self.names[side as usize] {
            let cycles: Outcome<Vec<_>> = names.iter().map(|it| way.named(it.clone())).collect();
            tasks.spawn(cycles.map(|cycles| async move {
                let mut count = 0_u32;
                // Through its names in an order of chance, so that no cache sees a pattern.
                let mut random = fastrand::Rng::new();
                while start.elapsed() < span {
                    cycles[random.usize(..cycles.len())].run().await?;
                    consume_budget().await;
                    count += 1;
                }
                Outcome::Ok(count)
            })?);
        }
        let mut total = 0;
        while let Some(count) = tasks.join_next().await {
            total += count??;
        }
        let rate = f64::from(total) / start.elapsed().as_secs_f64();
        Ok(vec![Reading::new("cycles", Unit::PerSecond, rate)])
    }
}
