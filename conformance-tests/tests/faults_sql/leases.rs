//! How long leases last: what was once given is never taken back.

use std::time::Duration;

use conformance_tests::task::within;
use conformance_tests::{Outcome, ensure};
use lockkit_core::contract::{Attempt, Renewal, Ticket};
use lockkit_core::{ClientId, DistributedLock as _, HolderId, Lease, LockName};
use tokio::time::sleep;

use crate::world::{Database, LONG, SOON, TTL, WAYS, builder, client, only_rows_left};

/// Requests that ask for less, alone and many at once, as late ones do.
pub(crate) async fn no_request_makes_a_lease_shorter<D: Database>() -> Outcome {
    let server = D::start().await?;
    let store = builder(&server, "lease").connect().await?;
    let ticket = |number| -> Outcome<Ticket> {
        let name = LockName::new(format!("jobs/{number}"))?;
        let holder = HolderId::new(ClientId::random(), number);
        Ok(Ticket::new(name, holder, LONG))
    };
    let tickets: Vec<Ticket> = (0..9).map(ticket).collect::<Outcome<_>>()?;
    for ticket in &tickets {
        store.attempt(ticket).await?;
    }
    let short: Vec<Ticket> = tickets.iter().map(|it| it.clone().with_ttl(TTL)).collect();
    let (alone, many) = short.split_at(1);
    for some in [alone, many] {
        for answer in store.renew(some).await {
            ensure(matches!(answer?, Renewal::Renewed { .. }), "not renewed")?;
        }
    }
    let again = store.attempt(&short[8]).await?;
    ensure(matches!(again, Attempt::Granted(_)), format!("{again:?}"))?;
    for ticket in &tickets {
        let left = store
            .inspect(&ticket.name)
            .await?
            .and_then(|it| it.remaining);
        ensure(
            left.is_some_and(|left| left > LONG / 2),
            format!("{left:?} left for {}", ticket.name),
        )?;
        store.release(ticket).await?;
    }
    only_rows_left(&server).await
}

/// Also that of a pin, whose end the server counts by itself.
pub(crate) async fn extended_lease_lasts_its_whole_time<D: Database>() -> Outcome {
    let server = D::start().await?;
    for way in WAYS {
        let lock = client(&server, way, TTL)
            .await?
            .lock(format!("jobs/{way}"))?;
        let guard = lock.with_lease(Lease::fixed(TTL))?.acquire().await?;
        guard.extend(TTL * 4).await?;
        // Shorter: nothing changes.
        guard.extend(TTL).await?;
        sleep(TTL * 2).await;
        let other = client(&server, way, TTL)
            .await?
            .lock(format!("jobs/{way}"))?;
        ensure(other.try_acquire().await?.is_none(), "two hold at once")?;
        guard.check()?;
        ensure(guard.remaining() > Duration::ZERO, "nothing is left")?;
        guard.release().await?;
        within(SOON, other.acquire()).await??.release().await?;
    }
    only_rows_left(&server).await
}
