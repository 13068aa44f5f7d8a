//! Users and roles.

use std::time::Duration;

use conformance_tests::servers::{EtcdCluster, EtcdCommand};
use conformance_tests::task::{acquire, hand_over, within};
use conformance_tests::{Outcome, ensure};
use etcd_client::Permission;
use lockkit_core::{Error, Outcome as Effect};
use lockkit_etcd::Names;
use tokio::time::sleep;

use crate::world::{LONG, SOON, builder, client_of, proxy};

pub(crate) const PASSWORD: &str = "s3cret-of-the-test";

/// A cluster with a user that may read and write below `lockkit/`, and no other user.
pub(crate) async fn guarded(cluster: &EtcdCluster) -> Outcome {
    let mut asker = cluster.client().await?;
    asker.role_add("root").await?;
    asker.user_add("root", PASSWORD, None).await?;
    asker.user_grant_role("root", "root").await?;
    asker.role_add("locks").await?;
    let below = Permission::read_write("lockkit/").with_prefix();
    asker.role_grant_permission("locks", below).await?;
    asker.user_add("app", PASSWORD, None).await?;
    asker.user_grant_role("app", "locks").await?;
    asker.auth_enable().await?;
    Ok(())
}

pub(crate) async fn user_needs_only_its_prefix() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    guarded(&cluster).await?;
    let ports = cluster.ports();
    let store = builder(&ports).user("app", PASSWORD).connect().await?;
    let lock = client_of(&store, LONG)?.lock("jobs")?;
    let guard = lock.acquire().await?;
    guard.check()?;
    guard.release().await?;
    // A token of a server that has forgotten it is replaced, and the request repeated.
    cluster.process(0).restart()?;
    let guard = lock.acquire().await?;
    guard.release().await?;

    for (user, password, root) in [
        (Some("app"), "wrong", "lockkit"),
        (None, "", "lockkit"),
        (Some("app"), PASSWORD, "elsewhere"),
    ] {
        let mut builder = builder(&ports).root(root);
        if let Some(user) = user {
            builder = builder.user(user, password);
        }
        let error = match builder.connect().await {
            Err(error) => error,
            Ok(_) => return ensure(false, format!("{user:?} may use {root}")),
        };
        ensure(
            error.outcome() == Effect::Rejected,
            format!("{user:?}: {error:?}"),
        )?;
        let shown = format!("{error:?} {error} {:?}", Error::from(error.clone()));
        ensure(!shown.contains(PASSWORD), "a password is shown")?;
        let place = format!("(127.0.0.1:{})", ports[0]);
        ensure(shown.contains(&place), shown)?;
    }
    Ok(())
}

/// The servers of others give tokens for minutes; this one for a second.
pub(crate) async fn renews_expired_token() -> Outcome {
    let command = EtcdCommand::system().options(["--auth-token-ttl", "1"]);
    let cluster = EtcdCluster::start(&command, 1).await?;
    guarded(&cluster).await?;
    let store = builder(&cluster.ports())
        .user("app", PASSWORD)
        .connect()
        .await?;
    let lock = client_of(&store, LONG)?.lock("jobs")?;
    let guard = lock.acquire().await?;
    // It keeps its first token.
    let mut bare = cluster.client_of("app", PASSWORD).await?;
    bare.get("lockkit/jobs", None).await?;
    for _ in 0..2 {
        // No client sends requests meanwhile: a token that is used lives on.
        sleep(Duration::from_secs(4)).await;
        let other = lock.inspect().await?;
        ensure(other.is_some(), "the hold is gone")?;
        let refused = bare.get("lockkit/jobs", None).await.is_err();
        ensure(refused, "no token has expired")?;
    }
    guard.release().await?;
    sleep(Duration::from_secs(4)).await;
    lock.acquire().await?.release().await?;
    Ok(())
}

/// The stream of the watches keeps the token with which it was opened.
pub(crate) async fn waiter_is_woken_after_the_token_has_expired() -> Outcome {
    let command = EtcdCommand::system().options(["--auth-token-ttl", "1"]);
    let cluster = EtcdCluster::start(&command, 1).await?;
    guarded(&cluster).await?;
    let proxy = proxy(&cluster).await?;
    let of_app = |port| builder(&[port]).user("app", PASSWORD);
    let waiting = of_app(proxy.addr().port()).connect().await?;
    let waiting = client_of(&waiting, LONG)?;
    let other = of_app(cluster.ports()[0]).connect().await?;
    let other = client_of(&other, LONG)?;
    for name in ["first", "second"] {
        let guard = other.lock(name)?.acquire().await?;
        let mut waiter = acquire(&waiting.lock(name)?);
        waiter.waits_for(Duration::from_millis(300)).await?;
        within(SOON, hand_over(guard, waiter))
            .await??
            .release()
            .await?;
        sleep(Duration::from_secs(4)).await;
    }
    // It was no reason to give up a connection that is well.
    let made = proxy.counts().connections;
    ensure(made == 1, format!("{made} connections"))
}

/// Names as they are, with nothing before them: the store has no prefix that it may read.
pub(crate) async fn user_of_one_lock_needs_only_its_keys() -> Outcome {
    let cluster = EtcdCluster::of(1).await?;
    guarded(&cluster).await?;
    let mut asker = cluster.client_of("root", PASSWORD).await?;
    let below = Permission::read_write("mylock/").with_prefix();
    asker.role_grant_permission("locks", below).await?;
    let raw = || builder(&cluster.ports()).names(Names::Raw);
    let store = raw().user("app", PASSWORD).connect().await?;
    let client = client_of(&store, LONG)?;
    client.lock("mylock")?.acquire().await?.release().await?;
    let other = client.lock("other")?.acquire().await;
    let rejected = |error: &Error| matches!(error, Error::Backend(error) if error.outcome() == Effect::Rejected);
    ensure(other.as_ref().is_err_and(rejected), format!("{other:?}"))?;
    let wrong = raw().user("app", "wrong").connect().await;
    ensure(wrong.is_err(), "a wrong password connects")
}
