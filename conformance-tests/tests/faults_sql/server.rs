//! A server that dies, or stalls and then executes what it was sent.

use std::time::Duration;

use conformance_tests::loss::loss_of;
use conformance_tests::task::{acquire, hand_over, within};
use conformance_tests::{Outcome, ensure};
use tokio::time::{Instant, sleep};

use crate::section::Section;
use crate::world::{Database, SOON, TTL, WAYS, locks, only_rows_left};

/// Shorter than a lease, by more than a renewal takes.
const SHORT: Duration = Duration::from_millis(600);

pub(crate) async fn killed_server_keeps_leases_and_ends_pins<D: Database>() -> Outcome {
    let server = D::start().await?;
    let of = locks(&server, "lease", Duration::from_secs(8), 2).await?;
    let guard = of[0].acquire().await?;
    let mut waiter = acquire(&of[1]);
    waiter.waits_for(Duration::from_millis(200)).await?;
    server.restart().await?;
    // Longer than a recheck of the waiter and a renewal of the holder.
    waiter.waits_for(Duration::from_secs(3)).await?;
    guard.check()?;
    let next = within(SOON, hand_over(guard, waiter)).await??;
    next.release().await?;

    let of = locks(&server, "pin", Duration::from_secs(8), 2).await?;
    let guard = of[0].acquire().await?;
    let waiter = acquire(&of[1]);
    sleep(Duration::from_millis(200)).await;
    let loss = loss_of(guard);
    server.restart().await?;
    let next = within(SOON, waiter.soon()).await???;
    let served = Instant::now();
    let (_, lost, guard) = within(SOON, loss.soon()).await??;
    ensure(lost <= served, "lost after another client held")?;
    ensure(next.token() > guard.token(), "the token has not grown")?;
    next.check()?;
    next.release().await?;
    Section::default().share(&of, 3).await?;
    only_rows_left(&server).await
}

pub(crate) async fn short_freeze_costs_no_hold<D: Database>() -> Outcome {
    let server = D::start().await?;
    for way in WAYS {
        let of = locks(&server, way, TTL * 2, 2).await?;
        let guard = of[0].acquire().await?;
        let mut waiter = acquire(&of[1]);
        // It is due in the middle of the freeze.
        let renewal = TTL * 2 / 3;
        sleep(renewal - SHORT / 2).await;
        server.process().stop()?;
        sleep(SHORT).await;
        server.process().resume()?;
        waiter.waits_for(TTL * 2).await?;
        guard.check()?;
        guard.release().await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    only_rows_left(&server).await
}

pub(crate) async fn long_freeze_ends_the_hold_before_another_begins<D: Database>() -> Outcome {
    let server = D::start().await?;
    for way in WAYS {
        let of = locks(&server, way, TTL, 2).await?;
        let guard = of[0].acquire().await?;
        let loss = loss_of(guard);
        let waiter = acquire(&of[1]);
        sleep(Duration::from_millis(50)).await;
        server.process().stop()?;
        sleep(TTL * 2).await;
        server.process().resume()?;
        let next = within(SOON, waiter.soon()).await???;
        let served = Instant::now();
        let (_, lost, guard) = within(SOON, loss.soon()).await??;
        ensure(lost < served, "lost after another client held")?;
        ensure(next.token() > guard.token(), "the token has not grown")?;
        next.check()?;
        next.release().await?;
    }
    only_rows_left(&server).await
}
