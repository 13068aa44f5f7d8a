//! Opening a store whose server is away, through the URL as a program does.

use std::time::Duration;

use conformance_tests::servers::{MASTER, RedisServer, SentinelGroup};
use conformance_tests::task::{soon, spawn, within};
use conformance_tests::{Failure, Outcome, Server, ensure};
use lockkit::Error;
use lockkit_core::{LockClient, Outcome as Effect};
use lockkit_redis::RedisStore;
use tokio::time::{Instant, sleep, timeout};

pub(crate) async fn opening_waits_for_a_server_that_starts_later() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let url = server.url();
    server.process().kill();
    let mut opened = spawn(async move { lockkit::connect(url).await });
    // It is refused meanwhile: a single attempt has ended long ago.
    let once = lockkit::builder(server.url()).wait(Duration::ZERO);
    ensure(once.connect().await.is_err(), "opened without a server")?;
    opened.waits_for(Duration::ZERO).await?;
    server.restart().await?;
    let client = within(Duration::from_secs(10), opened.soon()).await???;
    client.lock("jobs")?.acquire().await?.release().await?;
    Ok(())
}

pub(crate) async fn opening_gives_up_when_its_wait_is_over() -> Outcome {
    let server = RedisServer::forgetful().await?;
    server.process().kill();
    let wait = Duration::from_millis(700);
    let began = Instant::now();
    let opened = lockkit::builder(server.url()).wait(wait).connect().await;
    let Err(Error::Backend(error)) = opened else {
        return Err(Failure::new(format!("{opened:?}")));
    };
    ensure(error.outcome() == Effect::Unavailable, format!("{error:?}"))?;
    let took = began.elapsed();
    ensure(wait <= took && took < wait * 3, format!("it took {took:?}"))
}

/// Timers cannot count so far.
pub(crate) async fn endless_timeouts_are_long_ones() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let group = SentinelGroup::forgetful().await?;
    let endless = Duration::MAX;
    let store = || {
        RedisStore::builder()
            .connect_timeout(endless)
            .response_timeout(endless)
    };
    let hosts = group.ports().into_iter().map(|port| ("127.0.0.1", port));
    for store in [
        store().tcp("127.0.0.1", server.port()),
        store().sentinel(hosts, MASTER).quarantine(None),
    ] {
        let client = LockClient::new(soon(store.connect()).await??)?;
        for _ in 0..3 {
            let guard = soon(client.lock("jobs")?.acquire()).await??;
            // The connection is checked some time after it is ready.
            sleep(Duration::from_millis(50)).await;
            guard.release().await?;
        }
    }
    Ok(())
}

pub(crate) async fn opening_ends_at_once_if_the_server_refuses() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let url = format!("redis://nobody:wrong@127.0.0.1:{}", server.port());
    let opened = timeout(Duration::from_secs(10), lockkit::connect(url)).await?;
    let Err(Error::Backend(error)) = opened else {
        return Err(Failure::new(format!("{opened:?}")));
    };
    ensure(error.outcome() == Effect::Rejected, format!("{error:?}"))
}
