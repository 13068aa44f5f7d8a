//! What operators of either side see and do.

use std::time::Duration;

use conformance_tests::task::{until, within};
use conformance_tests::{Failure, Outcome, ensure};

use crate::world::{SOON, World, client};

pub(crate) async fn redissons_hold_is_listed_and_inspected() -> Outcome {
    let mut world = World::new().await?;
    let client = world.client().await?;
    world
        .redisson
        .expect("a lock plain jobs/1 0 -1", "got")
        .await?;
    let listed = client.list("jobs/").await?;
    let [state] = listed.as_slice() else {
        return Err(Failure::new(format!("listed: {listed:?}")));
    };
    ensure(state.name.as_str() == "jobs/1", "another name is listed")?;
    let inspected = client.lock("jobs/1")?.inspect().await?;
    let inspected = inspected.ok_or_else(|| Failure::new("it is not seen"))?;
    ensure(
        inspected.holders.len() == 1 && inspected.holder_ids().eq(state.holder_ids()),
        format!("holders: {:?}", inspected.holders),
    )?;
    let remaining = inspected.remaining;
    ensure(remaining.is_some(), "its lease is not seen")?;
    world
        .redisson
        .expect("a unlock plain jobs/1", "done")
        .await?;
    let listed = client.list("jobs/").await?;
    ensure(listed.is_empty(), format!("still listed: {listed:?}"))
}

pub(crate) async fn our_break_ends_redissons_hold_and_wakes_its_waiter() -> Outcome {
    let mut world = World::new().await?;
    let lock = world.client().await?.lock("jobs")?;
    for kind in ["plain", "fenced"] {
        world
            .redisson
            .ask(&format!("a lock {kind} jobs 0 -1"))
            .await?;
        let take = format!("b lock {kind} jobs -1 -1");
        world.redisson.send(&take).await?;
        until("Redisson's waiter listens", async || {
            let words = ["PUBSUB", "CHANNELS", "redisson_lock__channel:*"];
            let channels: Vec<String> = world.server.run(&words).await?;
            Ok(!channels.is_empty())
        })
        .await?;
        let broken = lock.break_lock().await?;
        ensure(broken.is_some(), "there was nothing to break")?;
        let answer = within(SOON, world.redisson.answer("b")).await??;
        ensure(answer.starts_with("got"), answer)?;
        let mine = format!("a is-mine {kind} jobs");
        world.redisson.expect(&mine, "false").await?;
        let unlock = format!("b unlock {kind} jobs");
        world.redisson.expect(&unlock, "done").await?;
    }
    Ok(())
}

pub(crate) async fn redissons_force_unlock_is_a_loss_to_our_holder() -> Outcome {
    let ttl = Duration::from_millis(1500);
    let mut world = World::new().await?;
    let client = client(world.store(), ttl).await?;
    let guard = client.lock("jobs")?.acquire().await?;
    world
        .redisson
        .expect("a force-unlock plain jobs", "true")
        .await?;
    let reason = within(SOON, guard.lost()).await?;
    ensure(
        reason == lockkit_core::LossReason::Superseded,
        format!("lost because {reason}"),
    )?;
    ensure(guard.check().is_err(), "a lost guard passes its check")
}
