//! Leases of sessions: how long the holds on them last.

use std::time::Duration;

use conformance_tests::requests::{granted, renewed};
use conformance_tests::servers::EtcdCluster;
use conformance_tests::task::{elsewhere, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::contract::{Attempt, DistributedLock as _, Renewal, Ticket};
use lockkit_core::{ClientId, HolderId, Lease, LockName};
use tokio::time::{Instant, sleep};

use crate::world::{LONG, SOON, TTL, builder, client, client_of, lease, store};

pub(crate) fn ticket(name: &str, ttl: Duration) -> Outcome<Ticket> {
    let holder = HolderId::new(ClientId::random(), 1);
    Ok(Ticket::new(LockName::new(name)?, holder, ttl))
}

/// The client ends a fixed lease, not the session, so that it can be extended beyond the session's ttl.
pub(crate) async fn extension_beyond_session_keeps_others_out() -> Outcome {
    const EXTENDED: Duration = Duration::from_secs(8);
    let cluster = EtcdCluster::of(1).await?;
    let one = client(&cluster, TTL).await?.lock("jobs")?;
    let other = client(&cluster, TTL).await?.lock("jobs")?;
    let guard = one.with_lease(Lease::fixed(TTL))?.acquire().await?;
    sleep(TTL / 4).await;
    let start = Instant::now();
    guard.extend(EXTENDED).await?;
    let next = within(EXTENDED + SOON, other.acquire()).await??;
    let kept = start.elapsed();
    ensure(guard.check().is_err(), "two hold at once")?;
    ensure(
        kept > EXTENDED.mul_f64(0.98) && kept < EXTENDED + TTL * 2,
        format!("others were kept out for {kept:?}"),
    )?;
    next.release().await?;
    Ok(())
}

/// Each ttl has a session of its own, and a renewal returns the ttl of the session.
pub(crate) async fn renewal_returns_lease_of_its_session() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let store = builder(&cluster.ports()).connect().await?;
    let (short, long) = (ticket("short", TTL)?, ticket("long", LONG)?);
    let mut holds = Vec::new();
    for ticket in [short, long] {
        let granted = store.attempt(&ticket).await?;
        let Attempt::Granted(grant) = granted else {
            return Err(Failure::new(format!("{granted:?}")));
        };
        ensure(grant.ttl == ticket.ttl, format!("{grant:?}"))?;
        ensure(grant.since.is_some(), "a grant has no age")?;
        // Whatever length is asked for, the session keeps its own.
        holds.push(ticket.with_ttl(LONG * 10));
    }
    ensure(store.leases().len() == 2, "they share a lease")?;
    let renewed = store.renew(&holds).await;
    ensure(renewed.len() == 2, "two tickets have not two results")?;
    for (renewed, session) in renewed.into_iter().zip([TTL, LONG]) {
        match renewed? {
            Renewal::Renewed {
                since: Some(_),
                ttl,
            } if ttl == session => {}
            other => return Err(Failure::new(format!("{other:?}, not {session:?}"))),
        }
    }
    Ok(())
}

/// The server counts whole seconds.
pub(crate) async fn server_keeps_a_lease_for_as_long_as_is_believed() -> Outcome {
    const TTL: Duration = Duration::from_millis(2_900);
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let store = store(&cluster).await?;
    let lock = client_of(&store, LONG)?.lock("jobs")?;
    let guard = lock.with_lease(Lease::fixed(TTL))?.acquire().await?;
    let kept = asker.lease_time_to_live(lease(&store)?, None).await?;
    let kept = Duration::from_secs(u64::try_from(kept.granted_ttl())?);
    ensure(kept >= TTL, format!("the server keeps it for {kept:?}"))?;
    guard.release().await?;
    Ok(())
}

/// Fixed leases may all differ.
pub(crate) async fn sessions_that_are_over_are_forgotten() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let store = store(&cluster).await?;
    let lock = client_of(&store, LONG)?.lock("jobs")?;
    let hold = async |ttl| {
        let lock = lock.clone().with_lease(Lease::fixed(ttl))?;
        Ok::<_, Failure>(lock.acquire().await?.release().await?)
    };
    for n in 0..8 {
        hold(Duration::from_millis(2_100 + 100 * n)).await?;
    }
    let [first] = store.leases()[..] else {
        return Err(Failure::new("leases of one number of seconds differ"));
    };
    let begin = Instant::now();
    for n in 0.. {
        hold(LONG + Duration::from_secs(n)).await?;
        if !store.leases().contains(&first) {
            break;
        }
        ensure(begin.elapsed() < SOON * 2, "it is kept for ever")?;
        sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

pub(crate) async fn renewal_tells_of_the_end_of_its_session() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    let mut asker = cluster.client().await?;
    let (store, ticket) = (store(&cluster).await?, ticket("jobs", TTL)?);
    granted(&store, &ticket).await?;
    asker.lease_revoke(lease(&store)?).await?;
    let renewal = renewed(&store, &ticket).await??;
    ensure(renewal == Renewal::SessionEnded, format!("{renewal:?}"))
}

/// The store is of another runtime, and its session goes on.
pub(crate) async fn hold_ends_with_the_runtime_of_its_client() -> Outcome {
    const TTL: Duration = Duration::from_secs(10);
    let cluster = EtcdCluster::of(1).await?;
    let store = store(&cluster).await?;
    let there = store.clone();
    // It keeps the session.
    let beside = client_of(&store, TTL)?.lock("beside")?.acquire().await?;
    elsewhere(async move || {
        let client = client_of(&there, TTL)?;
        client.lock("jobs")?.acquire().await?.leak();
        Ok(())
    })
    .await?;
    let other = client(&cluster, TTL).await?.lock("jobs")?;
    within(SOON, other.acquire()).await??.release().await?;
    beside.release().await?;
    Ok(())
}
