//! Servers that admit a client, or not any more: what it is served meanwhile.

use std::time::Duration;

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::RedisServer;
use conformance_tests::task::{acquire, until, within};
use conformance_tests::{Outcome, TestSuite, ensure};
use lockkit_core::{Error, LockClient, Outcome as Effect};
use tokio::time::{Instant, sleep};

use crate::cluster::WAYS;
use crate::quarantine::granted_at;
use crate::world::{client_of, store};

/// The lease and the quarantine.
const TTL: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_millis(1500);
const NAME: &str = "jobs/admission";

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(waiter_leaves_a_server_that_is_demoted_in_its_quarantine)
        .test(hold_is_adopted_only_where_the_client_is_admitted)
        .test(full_server_renews_and_releases_on_a_new_connection)
        .test(quarantine_is_named_where_a_holder_is)
}

async fn client(way: &str, port: u16) -> Outcome<LockClient> {
    client_of(
        store(way, port).ttl(TTL).quarantine(TTL).connect().await?,
        TTL,
    )
}

/// One address leads to the primary, as with managed services. The waiter sends no request to either meanwhile.
async fn waiter_leaves_a_server_that_is_demoted_in_its_quarantine() -> Outcome {
    for way in WAYS {
        let (former, present) = (
            RedisServer::forgetful().await?,
            RedisServer::forgetful().await?,
        );
        present.has_lost_nothing().await?;
        let address = Proxy::start(([127, 0, 0, 1], former.port()).into()).await?;
        let client = client(way, address.addr().port()).await?;
        let mut waiter = acquire(&client.lock(NAME)?);
        waiter.waits_for(Duration::from_millis(200)).await?;
        address.lead_to(([127, 0, 0, 1], present.port()).into());
        former.ask(&["REPLICAOF", "127.0.0.1", "1"]).await?;
        let guard = within(TTL + SOON, waiter.soon()).await???;
        let held = present.ask(&["EXISTS", NAME]).await?;
        ensure(held == ["1"], "granted elsewhere")?;
        guard.release().await?;
    }
    Ok(())
}

/// Another one may have adopted it in a write that was lost.
async fn hold_is_adopted_only_where_the_client_is_admitted() -> Outcome {
    let server = RedisServer::forgetful().await?;
    server.has_lost_nothing().await?;
    let (first, second) = (
        client("fifo", server.port()).await?,
        client("fifo", server.port()).await?,
    );
    granted_at(&second, "jobs/other").await?.release().await?;
    let text = first.lock(NAME)?.acquire().await?.detach().await?;
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]).await?;
    server.ask(&["REPLICAOF", "NO", "ONE"]).await?;
    let adopted = second.adopt(&text).await;
    let Err(Error::Backend(refused)) = &adopted else {
        return ensure(false, format!("{adopted:?}"));
    };
    ensure(
        refused.outcome() == Effect::Unavailable,
        refused.to_string(),
    )
}

/// It refuses what needs memory.
async fn full_server_renews_and_releases_on_a_new_connection() -> Outcome {
    let server = RedisServer::forgetful().await?;
    server.has_lost_nothing().await?;
    for way in WAYS {
        let client = client(way, server.port()).await?;
        let guard = client.lock(NAME)?.acquire().await?;
        server.ask(&["CONFIG", "SET", "maxmemory", "1"]).await?;
        server.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await?;
        let killed = Instant::now();
        sleep(TTL * 2).await;
        guard.check()?;
        guard.release().await?;
        ensure(killed.elapsed() < TTL * 2 + SOON, "released late")?;
        until("it is released", async || {
            Ok(server.ask(&["EXISTS", NAME]).await? == ["0"])
        })
        .await?;
        server.ask(&["CONFIG", "SET", "maxmemory", "0"]).await?;
    }
    Ok(())
}

/// Else a free lock would be "held by others".
async fn quarantine_is_named_where_a_holder_is() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let client = client("fifo", server.port()).await?;
    let lock = client.lock(NAME)?;
    let late = lock.acquire_timeout(Duration::from_millis(100)).await;
    let Err(error @ Error::Timeout { .. }) = &late else {
        return ensure(false, format!("{late:?}"));
    };
    let named = error
        .to_string()
        .contains("held by (the server, in quarantine)");
    ensure(named, error.to_string())?;
    lock.acquire().await?.release().await?;
    ensure(lock.inspect().await?.is_none(), "it is in quarantine")
}
