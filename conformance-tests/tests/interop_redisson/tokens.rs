//! One counter for both, whatever the name looks like.

use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Outcome, ensure};
use lockkit_redis::TokenTtl;

use crate::world::{LONG, SOON, World, client};

pub(crate) async fn tokens_grow_across_both() -> Outcome {
    let mut world = World::new().await?;
    let forever = client(world.store().token_ttl(TokenTtl::Never), LONG).await?;
    for (name, ours) in [("jobs", world.client().await?), ("forever", forever)] {
        let lock = ours.lock(name)?;
        let mut last = 0;
        for _ in 0..3 {
            let take = format!("a lock fenced {name} 0 -1");
            let theirs = world.redisson.token(&take).await?;
            ensure(theirs > last, format!("{theirs} of theirs after {last}"))?;
            let unlock = format!("a unlock fenced {name}");
            world.redisson.expect(&unlock, "done").await?;
            let guard = lock.acquire().await?;
            last = guard.token().get();
            ensure(last > theirs, format!("{last} of ours after {theirs}"))?;
            guard.release().await?;
        }
        // Redisson made it without an end, and it does not get one by our use.
        let key = format!("redisson_lock_token:{{{name}}}");
        let left: i64 = world.server.run(&["PTTL", &key]).await?;
        ensure(left == -1, format!("the counter ends in {left} ms"))?;
    }
    Ok(())
}

pub(crate) async fn names_with_braces_share_lock_token_and_channel() -> Outcome {
    let mut world = World::new().await?;
    let client = world.client().await?;
    for name in [
        "a{tag}b", "{x}", "x", "x}y", "a{b", "{}z", "a{b}c{d}", "ä{ö}",
    ] {
        let lock = client.lock(name)?;
        let guard = lock.acquire().await?;
        let tried = format!("a lock plain {name} 0 -1");
        world.redisson.expect(&tried, "missed").await?;
        // It waits, is woken by our release, and draws from the same counter.
        let take = format!("a lock fenced {name} -1 -1");
        world.redisson.send(&take).await?;
        listeners(&world, name, 1).await?;
        let ours = guard.token().get();
        guard.release().await?;
        let theirs = within(SOON, world.redisson.token_of("a")).await??;
        ensure(theirs > ours, format!("`{name}`: {theirs} after {ours}"))?;
        listeners(&world, name, 0).await?;
        let waiter = acquire(&lock);
        listeners(&world, name, 1).await?;
        let unlock = format!("a unlock fenced {name}");
        world.redisson.expect(&unlock, "done").await?;
        within(SOON, waiter.soon()).await???.release().await?;
    }
    Ok(())
}

/// Waits until `count` clients listen on the channel of this lock.
async fn listeners(world: &World, name: &str, count: u64) -> Outcome {
    let channel = match name.contains('{') {
        true => format!("redisson_lock__channel:{name}"),
        false => format!("redisson_lock__channel:{{{name}}}"),
    };
    until("all listen", async || {
        let words = ["PUBSUB", "NUMSUB", &channel];
        let (_, listening): (String, u64) = world.server.run(&words).await?;
        Ok(listening == count)
    })
    .await
}
