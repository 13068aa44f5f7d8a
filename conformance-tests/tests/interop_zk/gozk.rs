//! go-zookeeper's `Lock`.

use conformance_tests::Outcome;
use conformance_tests::foreign::GoZk;

use crate::world::World;

pub(crate) async fn both_sides_wait_in_one_queue() -> Outcome {
    let world = World::new().await?;
    let mut go = GoZk::start(world.port).await?;
    for _ in 0..2 {
        world.serves_in_order(&mut go, "").await?;
    }
    Ok(())
}
