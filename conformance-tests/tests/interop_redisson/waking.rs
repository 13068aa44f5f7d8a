//! Who waits is woken, by a message and long before a lease ends or somebody looks by himself.

use std::time::Duration;

use conformance_tests::task::{Task, acquire, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::{Guard, Lease};

use crate::world::{LONG, SOON, World, client};

type Acquired = Task<lockkit_core::Result<Guard>>;

pub(crate) async fn redissons_unlock_wakes_our_waiter() -> Outcome {
    let mut world = World::new().await?;
    for (how, client) in world.waiting_clients().await? {
        for kind in ["plain", "fenced"] {
            let name = format!("jobs/{how}/{kind}");
            let lock = client.lock(name.as_str())?;
            let take = format!("a lock {kind} {name} 0 -1");
            world.redisson.ask(&take).await?;
            let waiter = acquire(&lock);
            listens(&world, &name).await?;
            let unlock = format!("a unlock {kind} {name}");
            world.redisson.expect(&unlock, "done").await?;
            let guard = woken(waiter).await?;
            guard.release().await?;
        }
    }
    Ok(())
}

pub(crate) async fn our_release_wakes_redissons_waiter() -> Outcome {
    let mut world = World::new().await?;
    for (how, client) in world.waiting_clients().await? {
        for kind in ["plain", "fenced"] {
            let name = format!("jobs/{how}/{kind}");
            let guard = client.lock(name.as_str())?.acquire().await?;
            let take = format!("a lock {kind} {name} -1 -1");
            world.redisson.send(&take).await?;
            listens(&world, &name).await?;
            guard.release().await?;
            let answer = within(SOON, world.redisson.answer("a")).await??;
            ensure(answer.starts_with("got"), answer)?;
            let unlock = format!("a unlock {kind} {name}");
            world.redisson.expect(&unlock, "done").await?;
        }
    }
    Ok(())
}

pub(crate) async fn killed_redisson_frees_its_lock_for_our_waiter() -> Outcome {
    let lease = Duration::from_secs(2);
    let mut world = World::with_watchdog(lease).await?;
    let lock = world.client().await?.lock("jobs")?;
    world
        .redisson
        .expect("a lock plain jobs 0 -1", "got")
        .await?;
    let waiter = acquire(&lock);
    listens(&world, "jobs").await?;
    world.redisson.kill().await?;
    // The waiter knows when the lease ends: it needs no look in between.
    let guard = within(lease + SOON, woken(waiter)).await??;
    guard.check()?;
    Ok(())
}

pub(crate) async fn our_crash_frees_the_lock_for_redissons_waiter() -> Outcome {
    let lease = Duration::from_secs(2);
    let mut world = World::new().await?;
    let client = client(world.store(), LONG).await?;
    let lock = client.lock("jobs")?.with_lease(Lease::fixed(lease))?;
    // As after a crash: no renewal and no release.
    lock.acquire().await?.leak();
    world.redisson.send("a lock plain jobs -1 -1").await?;
    let answer = within(lease + SOON, world.redisson.answer("a")).await??;
    ensure(answer == "got", answer)
}

/// Waits until somebody listens on the lock's channel: all that wait do.
async fn listens(world: &World, name: &str) -> Outcome {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    until("the waiter listens", async || {
        let words = ["PUBSUB", "NUMSUB", &channel];
        let (_, count): (String, u64) = world.server.run(&words).await?;
        Ok(count > 0)
    })
    .await
}

async fn woken(waiter: Acquired) -> Outcome<Guard> {
    Ok(within(SOON, waiter.soon()).await???)
}
