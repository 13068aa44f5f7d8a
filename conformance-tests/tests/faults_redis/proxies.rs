//! A real proxy in front of the server, which hangs up when it is asked what it does not know.

use conformance_tests::proxy::Proxy;
use conformance_tests::servers::{Nutcracker, RedisServer};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{Error, Outcome as Effect};

use crate::world::{LONG, client_at};

pub(crate) async fn server_that_the_proxy_cannot_reach_is_unavailable() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let nutcracker = Nutcracker::start(server.port()).await?;
    let lock = client_at("poll", nutcracker.addr().port(), LONG).await?;
    let lock = lock.lock("jobs")?;
    lock.acquire().await?.release().await?;
    server.process().kill();
    // The first one may have been on the connection that ended.
    for possible in [Effect::Indeterminate, Effect::Unavailable] {
        let Err(Error::Backend(away)) = lock.inspect().await else {
            return Err(Failure::new("a server that is dead has replied"));
        };
        let outcome = away.outcome();
        let expected = [possible, Effect::Unavailable].contains(&outcome);
        ensure(expected, format!("{away:?}"))?;
    }
    Ok(())
}

pub(crate) async fn list_refused_by_the_proxy_fails_alone() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let nutcracker = Nutcracker::start(server.port()).await?;
    let counting = Proxy::start(nutcracker.addr()).await?;
    let client = client_at("poll", counting.addr().port(), LONG).await?;
    let guard = client.lock("jobs")?.acquire().await?;
    let Err(Error::Backend(refused)) = client.list("").await else {
        return Err(Failure::new("listed through a proxy that knows no SCAN"));
    };
    ensure(
        refused.outcome() == Effect::Rejected,
        format!("{refused:?}"),
    )?;
    let why = Failure::from(refused).to_string();
    ensure(why.contains("SCAN") && why.contains("proxy"), why)?;
    // Requests on one lock pass.
    let seen = client.lock("jobs")?.inspect().await?;
    ensure(seen.is_some(), "no holder is shown")?;
    guard.check()?;
    guard.release().await?;
    // One connection of the client, and two that were hung up.
    let connections = counting.counts().connections;
    ensure(connections == 3, format!("{connections} connections"))
}
