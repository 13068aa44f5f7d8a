//! A database whose clock is set, as by an administrator or after a bad day of its time service.
//!
//! Leases promise nothing over such a step; tokens and guarded transactions do.

use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::servers::ServerClock;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Outcome, ensure};

use crate::guarded::refused;
use crate::world::{Database, LONG, SOON, client, locks, only_rows_left};

async fn server<D: Database>(clock: &ServerClock) -> Outcome<D> {
    D::start_below(&clock.words()?).await
}

pub(crate) async fn tokens_grow_when_the_clock_goes_back<D: Database>() -> Outcome {
    let clock = ServerClock::new("+0")?;
    let server: D = server(&clock).await?;
    for way in crate::world::WAYS {
        let of = locks(&server, way, LONG, 2).await?;
        let mut last = None;
        for offset in ["+0", "-90m", "-3d", "+0"] {
            clock.set(offset)?;
            // Often enough in a row for every fast path.
            for lock in of.iter().cycle().take(12) {
                let guard = within(SOON, lock.acquire()).await??;
                let token = Some(guard.token());
                ensure(
                    token > last,
                    format!("{token:?} after {last:?} at {offset}"),
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
    let pool = server.pool(2).await?;
    let (mine, other) = (
        client(&server, "lease", Duration::from_secs(9)).await?,
        client(&server, "lease", LONG).await?,
    );
    let guard = mine.lock("jobs")?.acquire().await?;
    let waiter = acquire(&other.lock("jobs")?);
    tokio::time::sleep(Duration::from_millis(200)).await;
    let loss = loss_of(guard);
    clock.set("+2h")?;
    // A lease counts by that clock; its holder loses it with its next renewal.
    let next = within(SOON, waiter.soon()).await???;
    let (_, _, guard) = within(SOON, loss.soon()).await??;
    ensure(next.token() > guard.token(), "the token has not grown")?;
    refused::<D>(&mine, &guard, pool.begin().await?).await?;
    next.release().await?;
    only_rows_left(&server).await
}
