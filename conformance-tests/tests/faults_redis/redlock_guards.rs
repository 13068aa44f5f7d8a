//! Guards of a Redlock while all requests of their client to one, two and three of five nodes fail.

use std::pin::pin;
use std::sync::Arc;

use conformance_tests::task::{spawn, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::{ClientId, Guard, Lease, LockClient, PollRange};
use lockkit_redis::RedisStore;
use tokio::time::timeout;

use crate::redlock::store;
use crate::redlock_faults::{BUSY, Fault, LONGEST, NODES, OOM, World};
use crate::redlock_steps::step_returns_its_true_outcome_whichever_nodes_fail;
use crate::world::TTL;

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(step_returns_its_true_outcome_whichever_nodes_fail)
        .test(guard_passes_no_check_beside_another_whichever_nodes_fail)
}

/// What a client does while all requests to some nodes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Acquire,
    Keep,
    Extend,
    Release,
}

async fn guard_ends_before_another_begins(
    world: &World,
    (what, fault, nodes): (Use, Fault, usize),
) -> Outcome {
    let name = format!("jobs/{what:?}/{}", ClientId::random());
    let lease = match what {
        Use::Extend => Lease::fixed(TTL),
        _ => Lease::renewed(TTL),
    };
    let client = async || {
        // Many wait at once.
        let node = RedisStore::builder()
            .ttl(LONGEST)
            .poll(PollRange::new(TTL / 30, TTL / 5));
        let store = store(world.hosts.clone(), LONGEST).options(node);
        let store = store.connect().await?;
        Ok::<_, Failure>(LockClient::builder(store).lease(lease).build()?)
    };
    let (first, second) = (client().await?, client().await?);
    let lock = first.lock(name.as_str())?;
    let other = second.lock(name.as_str())?;
    let arm = || world.arm(&first.id().to_string(), fault, nodes, None);
    let mut guard: Option<Guard> = None;
    if what == Use::Acquire {
        arm();
        guard = lock.acquire_timeout(TTL / 2).await.ok();
    } else {
        guard.replace(lock.acquire().await?);
        arm();
    }
    let limit = if what == Use::Release { TTL } else { LONGEST };
    if let Some(held) = guard.take_if(|_| what == Use::Release) {
        // It goes on by itself if it fails.
        drop(held.release().await);
    } else if let Some(held) = guard.as_ref().filter(|_| what == Use::Extend) {
        drop(held.extend(LONGEST).await);
    }
    let mut next = pin!(other.acquire());
    let early = timeout(limit + BUSY, next.as_mut()).await;
    let ended = early.is_ok() || nodes < 3;
    ensure(ended, "no other client gets it")?;
    let next = match early {
        Ok(next) => next?,
        Err(_) => {
            // Two nodes are not missed.
            if let Some(held) = guard.take() {
                drop(held.release().await);
            }
            // A release that a node refused is repeated.
            within(TTL * 2 + BUSY, next).await??
        }
    };
    let two = guard.is_some_and(|guard| guard.check().is_ok());
    ensure(!two, "two guards pass their checks")?;
    next.release().await?;
    Ok(())
}

async fn guard_passes_no_check_beside_another_whichever_nodes_fail() -> Outcome {
    let world = World::new().await?;
    // One after the other: an attempt fails that has no replies within a tenth of its lease, and all clients at once
    // would keep a slow machine busy for longer than that.
    for what in [Use::Acquire, Use::Keep, Use::Extend, Use::Release] {
        let mut tasks = Vec::new();
        for fault in [OOM, Fault::Cut, Fault::Lost] {
            for row in NODES.map(|nodes| (what, fault, nodes)) {
                let world = Arc::clone(&world);
                let run = async move { guard_ends_before_another_begins(&world, row).await };
                tasks.push((row, spawn(run)));
            }
        }
        for (row, task) in tasks {
            let ended = task.soon().await?;
            ended.map_err(|failed| Failure::new(format!("{row:?}: {failed}")))?;
        }
    }
    world.nothing_is_left().await
}
