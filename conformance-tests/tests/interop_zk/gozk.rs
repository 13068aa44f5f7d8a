//! go-zookeeper's `Lock`.

use std::time::Duration;

use conformance_tests::foreign::GoZk;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Outcome, ensure};
use lockkit_zk::Dialect;

use crate::world::{SOON, World};

pub(crate) async fn both_sides_wait_in_one_queue() -> Outcome {
    let world = World::new().await?;
    let path = world.path();
    let mut go = GoZk::start(world.port).await?;
    let (first, second) = (
        world.lock(Dialect::Curator).await?,
        world.lock(Dialect::Curator).await?,
    );
    for _ in 0..2 {
        let held = first.acquire().await?;
        go.send(&format!("a lock {path}")).await?;
        world.queued(2).await?;
        let early = within(Duration::from_millis(300), go.answer("a")).await;
        ensure(early.is_err(), "both hold the lock")?;
        let ours = acquire(&second);
        world.queued(3).await?;
        go.send(&format!("b lock {path}")).await?;
        world.queued(4).await?;
        held.release().await?;
        ensure(go.answer("a").await? == "got", "not granted")?;
        ensure(first.try_acquire().await?.is_none(), "both hold the lock")?;
        go.expect(&format!("a unlock {path}"), "done").await?;
        let guard = within(SOON, ours.soon()).await???;
        world.queued(2).await?;
        guard.release().await?;
        ensure(go.answer("b").await? == "got", "not granted")?;
        go.expect(&format!("b unlock {path}"), "done").await?;
        world.queued(0).await?;
    }
    Ok(())
}
