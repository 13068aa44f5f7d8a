//! Users, the chroot, and what the ensemble grants.

use std::error::Error as _;
use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::free_port;
use conformance_tests::task::{spawn, until};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{Error, FencingToken, Lease, LockClient, Outcome as Effect};
use lockkit_zk::{Access, Auth, ZkStore};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::world::{Plot, client};

pub(crate) async fn user_shares_locks_with_itself_alone() -> Outcome {
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
        Err(Error::Backend(error)) if error.outcome() == Effect::Rejected => {
            let text = Error::from(error).to_string();
            let place = format!("(127.0.0.1:{})", plot.port);
            ensure(text.contains(&place), text)?;
        }
        other => return Err(Failure::new(format!("{other:?}"))),
    }
    // A user whose nodes are open to all.
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

pub(crate) async fn chroot_is_created_and_kept() -> Outcome {
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
pub(crate) async fn session_that_is_not_granted_is_an_error() -> Outcome {
    let plot = Plot::new().await?;
    let hour = Duration::from_secs(3600);
    let store = plot.builder().session(hour).connect().await?;
    let made = LockClient::builder(store)
        .lease(Lease::renewed(hour))
        .build();
    match made {
        Err(Error::Unsupported { what }) => ensure(what.contains("its servers grant"), what),
        _ => Err(Failure::new("a lease that the ensemble does not grant")),
    }
}

/// As a command with `--ttl` does it: the session lasts as long as the lease that is set in code.
pub(crate) async fn lease_set_in_code_reaches_the_session() -> Outcome {
    let plot = Plot::new().await?;
    let url = format!("zk://127.0.0.1:{}/?root={}", plot.port, plot.root);
    let five = Duration::from_secs(5);
    let client = lockkit::builder(&url).lease(Lease::renewed(five));
    let client = client.connect().await?;
    client.lock("jobs")?.acquire().await?.release().await?;
    let later = lockkit::connect(&url).await?.lock("jobs")?;
    let refused = later.with_lease(Lease::renewed(five));
    let text = refused
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    ensure(text.contains("`ttl=`"), text)
}

/// A message names each member that was tried and what became of it.
pub(crate) async fn unreachable_ensemble_is_named_with_the_reason() -> Outcome {
    let limit = Duration::from_secs(2);
    let refused = free_port()?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let foreign = listener.local_addr()?.port();
    // As a server of another protocol.
    let _other = spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            drop(socket.write_all(b"-ERR unknown command\r\n").await);
        }
    });
    // Longer than a label may be: no resolver is asked.
    let no_name = "n".repeat(64);
    for (host, port, reason) in [
        ("127.0.0.1", refused, "refused"),
        (&*no_name, 2181, "lookup"),
        ("127.0.0.1", foreign, "gives no session"),
    ] {
        let builder = ZkStore::builder().host(host, port).connect_timeout(limit);
        let began = Instant::now();
        let error = builder.connect().await.err();
        let error = error.ok_or_else(|| Failure::new("connected to nothing"))?;
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let text = format!("{error}: {}", source.unwrap_or_default());
        ensure(error.outcome() == Effect::Unavailable, text.clone())?;
        let named = text.contains(&format!("{host}:{port}")) && text.contains(reason);
        ensure(named, text)?;
        let took = began.elapsed();
        let most = match reason {
            "refused" => limit / 2,
            _ => limit + Duration::from_secs(2),
        };
        ensure(took < most, format!("{port}: {took:?}"))?;
    }
    Ok(())
}

/// Also after the connection was lost.
pub(crate) async fn lost_ensemble_is_named() -> Outcome {
    let plot = Plot::new().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], plot.port).into()).await?;
    let port = proxy.addr().port();
    let client = client(plot.builder_at(port)).await?;
    let address = client.backend().address();
    ensure(address == Some(format!("127.0.0.1:{port}")), "no address")?;
    client.lock("jobs")?.acquire().await?.release().await?;
    proxy.refuse(true);
    proxy.reset();
    until("the message names the server", async || {
        let answer = client.lock("jobs")?.try_acquire().await;
        let text = answer.err().map(|error| error.to_string());
        Ok(text.is_some_and(|text| text.contains(&format!("127.0.0.1:{port}"))))
    })
    .await
}

pub(crate) async fn token_base_has_a_limit() -> Outcome {
    let plot = Plot::new().await?;
    let largest = FencingToken::LARGEST_BASE;
    let lock = client(plot.builder().token_base(largest))
        .await?
        .lock("jobs")?;
    let first = lock.acquire().await?;
    let token = first.token();
    ensure(token.get() > largest, token.to_string())?;
    first.release().await?;
    let second = lock.acquire().await?;
    ensure(second.token() > token, "the token did not grow")?;
    second.release().await?;
    let error = plot.builder().token_base(largest + 1).connect().await.err();
    let error = error.ok_or_else(|| Failure::new("it was opened"))?;
    ensure(error.outcome() == Effect::Rejected, format!("{error:?}"))?;
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    ensure(why.contains("2^62"), why)
}
