//! Curator's `LeaderSelector`.

use std::time::Duration;

use conformance_tests::foreign::Curator;
use conformance_tests::task::spawn;
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::Election;

use crate::world::{SESSION, World};

async fn leads(election: &Election, value: &str) -> Outcome {
    let leader = election.leader().await?;
    let leader = leader.ok_or_else(|| Failure::new("nobody leads"))?;
    ensure(
        leader.value.as_deref() == Some(value),
        format!("{value}: {leader:?}"),
    )
}

/// Candidates of both queue up, and each side sees the leader of the other.
pub(crate) async fn curator_and_we_elect_one_leader_together() -> Outcome {
    let world = World::new().await?;
    let (election, path) = (world.election().await?, world.path());
    let mut curator = Curator::start(world.port, SESSION).await?;
    curator.expect(&format!("a lead {path} one"), "got").await?;
    leads(&election, "one").await?;
    let candidate = election.clone();
    let mut waiting = spawn(async move { candidate.campaign("two").await });
    waiting.waits_for(Duration::from_millis(200)).await?;
    curator.expect(&format!("a resign {path}"), "done").await?;
    let term = waiting.soon().await??;
    curator.expect(&format!("b leader {path}"), "two").await?;
    leads(&election, "two").await?;
    curator.send(&format!("a lead {path} three")).await?;
    world.queued(2).await?;
    term.check()?;
    term.release().await?;
    let answer = curator.answer("a").await?;
    ensure(answer == "got", answer)?;
    leads(&election, "three").await
}
