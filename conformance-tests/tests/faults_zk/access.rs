//! Users, the chroot, and what the ensemble grants.

use std::time::Duration;

use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{Error, Lease, LockClient, Outcome as Effect};
use lockkit_zk::{Access, Auth};

use crate::world::{Plot, client};

pub(crate) async fn a_user_shares_locks_with_itself_alone() -> Outcome {
    let plot = Plot::new().await?;
    let app = || plot.builder().user(Auth::Digest, "app", "s3cret");
    let (a, b) = (client(app()).await?, client(app()).await?);
    let guard = a.lock("jobs")?.acquire().await?;
    ensure(b.lock("jobs")?.try_acquire().await?.is_none(), "two hold")?;
    guard.release().await?;
    b.lock("jobs")?.acquire().await?.release().await?;
    let stranger = client(plot.builder()).await?;
    let result = stranger.lock("jobs")?.acquire().await;
    match result {
        Err(Error::Backend(error)) if error.outcome() == Effect::Rejected => {}
        other => return Err(Failure::new(format!("{other:?}"))),
    }
    // A user whose nodes are for everybody.
    let open = Plot::new().await?;
    let shared = open
        .builder()
        .user(Auth::Digest, "app", "s3cret")
        .access(Access::Anyone);
    let guard = client(shared).await?.lock("jobs")?.acquire().await?;
    let stranger = open.lock().await?;
    ensure(stranger.try_acquire().await?.is_none(), "two hold")?;
    guard.release().await?;
    stranger.acquire().await?.release().await?;
    Ok(())
}

pub(crate) async fn the_chroot_is_made_and_kept() -> Outcome {
    let plot = Plot::new().await?;
    let chroot = format!("{}/shop/eu", plot.root);
    let inside = plot.builder().chroot(chroot.as_str()).root("/locks");
    let lock = client(inside).await?.lock("jobs")?;
    let guard = lock.acquire().await?;
    let children = plot
        .bare
        .list_children(&format!("{chroot}/locks/jobs"))
        .await?;
    ensure(children.len() == 1, format!("{children:?}"))?;
    // The same place without a chroot.
    let outside = plot.builder().root(format!("{chroot}/locks"));
    let outside = client(outside).await?.lock("jobs")?;
    ensure(outside.try_acquire().await?.is_none(), "two hold")?;
    guard.release().await?;
    outside.acquire().await?.release().await?;
    let (_, stat) = plot.bare.get_data(&chroot).await?;
    ensure(stat.ephemeral_owner == 0, "the chroot is no plain node")
}

/// The servers of the tests grant a minute at most.
pub(crate) async fn a_session_that_is_not_granted_is_an_error() -> Outcome {
    let plot = Plot::new().await?;
    let hour = Duration::from_secs(3600);
    let store = plot.builder().session(hour).connect().await?;
    let made = LockClient::builder(store)
        .lease(Lease::renewed(hour))
        .build();
    ensure(
        matches!(made, Err(Error::Unsupported { .. })),
        "a lease that the ensemble does not grant",
    )
}
