//! How long others wait after a holder was killed.

use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::cycle::name;
use super::{Probe, Reading};
use crate::bare;
use crate::failure::{Failure, Outcome};
use crate::report::Unit;
use crate::side::Side;
use crate::target::{Target, with_option};
use crate::worker::{Program, Role, Start, Worker};

/// Enough for a waiter to join the queue.
const AHEAD: Duration = Duration::from_millis(100);

pub(super) struct Recovery {
    program: Program,
    url: String,
    ttl: Duration,
    /// Names of both sides, and how many were used.
    names: [String; 2],
    used: usize,
}

impl Recovery {
    pub(super) fn new(target: &Target, program: &Program) -> Self {
        // A second, or the shortest that the store allows: a report of minutes has no time for leases of half a minute.
        let ttl = target.lease(Duration::from_secs(1));
        let option = format!("{}ms", ttl.as_millis());
        Self {
            program: program.clone(),
            url: with_option(&target.url, "ttl", &option),
            ttl,
            names: Side::BOTH.map(|side| name(target, side, "recovery")),
            used: 0,
        }
    }
}

#[async_trait]
impl Probe for Recovery {
    async fn measure(&mut self, side: Side, _span: Duration) -> Outcome<Vec<Reading>> {
        self.used += 1;
        let start = Start {
            url: self.url.clone(),
            side,
            name: format!("{}-{}", self.names[side as usize], self.used),
            role: Role::Victim { ttl: self.ttl },
        };
        let mut victim = Worker::start(&self.program, &start).await?;
        let mut heirs = JoinSet::new();
        heirs.spawn(async move {
            match side {
                Side::Lock => {
                    let client = lockkit::connect(&start.url).await?;
                    let guard = client.lock(start.name)?.acquire().await?;
                    let now = Instant::now();
                    guard.release().await?;
                    client.shutdown(Duration::ZERO).await?;
                    Outcome::Ok(now)
                }
                Side::Bare => {
                    let bare = bare::open(&start.url).await?;
                    bare.wait_for(&start.name).await?;
                    Ok(Instant::now())
                }
            }
        });
        sleep(AHEAD).await;
        let killed = Instant::now();
        victim.kill()?;
        let taken = heirs.join_next().await;
        let taken = taken.ok_or_else(|| Failure::new("the heir is gone"))???;
        let took = taken.saturating_duration_since(killed);
        Ok(vec![Reading::new(
            "until the next holds",
            Unit::Seconds,
            took.as_secs_f64(),
        )])
    }

    fn note(&self) -> Option<String> {
        Some(format!("lease {:?}, just begun", self.ttl))
    }
}
