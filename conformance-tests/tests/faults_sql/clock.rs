//! A database whose clock is set, as by an administrator or after a bad day of its time service.
//!
//! Leases promise nothing over such a step; tokens and guarded transactions do.

use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::servers::ServerClock;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Outcome, ensure};
use tokio::time::Instant;

use crate::guarded::refused;
use crate::world::{Database, LONG, SOON, client, locks, only_rows_left};

async fn server<D: Database>(clock: &ServerClock) -> Outcome<D> {
    D::start_below(&clock.words()?).await
}

/// The server's clock, which can be set.
struct Steps<'a, D> {
    server: &'a D,
    clock: &'a ServerClock,
    /// Its microseconds at a moment when it was not set.
    base: (i64, Instant),
}

impl<'a, D: Database> Steps<'a, D> {
    async fn new(server: &'a D, clock: &'a ServerClock) -> Outcome<Self> {
        let base = (now(server).await?, Instant::now());
        Ok(Self {
            server,
            clock,
            base,
        })
    }

    /// Sets the clock, and looks whether the server follows it.
    async fn set(&self, (offset, seconds): (&str, i64)) -> Outcome {
        self.clock.set(offset)?;
        let (then, moment) = self.base;
        let passed = i64::try_from(moment.elapsed().as_micros())?;
        let ahead = (now(self.server).await? - then - passed) / 1_000_000;
        ensure(
            (ahead - seconds).abs() < 60,
            format!("the server's clock is ahead by {ahead} s after {offset}"),
        )
    }
}

async fn now<D: Database>(server: &D) -> Outcome<i64> {
    let told = server.ask(&format!("select {}", D::NOW)).await?;
    Ok(told[0].parse()?)
}

pub(crate) async fn tokens_grow_when_the_clock_goes_back<D: Database>() -> Outcome {
    let clock = ServerClock::new("+0")?;
    let server: D = server(&clock).await?;
    let steps = Steps::new(&server, &clock).await?;
    for way in crate::world::WAYS {
        let of = locks(&server, way, LONG, 2).await?;
        let mut last = None;
        for step in [("+0", 0), ("-90m", -5_400), ("-3d", -259_200), ("+0", 0)] {
            steps.set(step).await?;
            // Often enough in a row for every fast path.
            for lock in of.iter().cycle().take(12) {
                let guard = within(SOON, lock.acquire()).await??;
                let token = Some(guard.token());
                ensure(
                    token > last,
                    format!("{token:?} after {last:?} at {step:?}"),
                )?;
                last = token;
                guard.release().await?;
            }
        }
    }
    only_rows_left(&server).await
}

pub(crate) async fn clock_that_jumps_ahead_fences_the_holder<D: Database>() -> Outcome {
    let clock = ServerClock::new("+0")?;
    let server: D = server(&clock).await?;
    let steps = Steps::new(&server, &clock).await?;
    let pool = server.pool(2).await?;
    let (mine, other) = (
        client(&server, "lease", Duration::from_secs(9)).await?,
        client(&server, "lease", LONG).await?,
    );
    let guard = mine.lock("jobs")?.acquire().await?;
    let waiter = acquire(&other.lock("jobs")?);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let loss = loss_of(guard);
    steps.set(("+2h", 7_200)).await?;
    // A lease counts by that clock; its holder loses it with its next renewal.
    let next = within(SOON, waiter.soon()).await???;
    let (_, _, guard) = within(SOON, loss.soon()).await??;
    ensure(next.token() > guard.token(), "the token has not grown")?;
    refused::<D>(&mine, &guard, pool.begin().await?).await?;
    next.release().await?;
    only_rows_left(&server).await
}
