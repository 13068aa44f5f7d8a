//! Opening a store through the URL, as a program does, while its server falls silent.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use conformance_tests::task::within;
use conformance_tests::{Failure, Outcome, ensure};
use lockkit::Error;
use lockkit::url::StoreUrl;
use lockkit_core::Outcome as Effect;
use lockkit_proxy::{Dropped, Proxy};

use crate::world::Database;

/// The table that the first request after the login asks for.
const TABLE: &[u8] = b"lockkit_locks";

/// A proxy to the server, and the URL that leads through it.
async fn through_a_proxy<D: Database>(server: &D) -> Outcome<(Proxy, String)> {
    let url = server.url("timeout=200ms");
    let port = url.parse::<StoreUrl>()?.hosts()[0].port();
    let port = port.ok_or_else(|| Failure::new("the URL has no port"))?;
    let proxy = Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    let there = format!(":{}/", proxy.addr().port());
    let url = url.replace(&format!(":{port}/"), &there);
    Ok((proxy, url))
}

fn fall_silent(proxy: &Proxy) {
    let asks = |bytes: &[u8]| bytes.windows(TABLE.len()).any(|part| part == TABLE);
    proxy.drop_reply(Dropped::Silence, asks);
}

pub(crate) async fn opening_ends_if_the_server_falls_silent<D: Database>() -> Outcome {
    let server = D::start().await?;
    let (proxy, url) = through_a_proxy(&server).await?;
    fall_silent(&proxy);
    let once = lockkit::builder(&url).wait(Duration::ZERO).connect();
    let opened = within(Duration::from_secs(10), once).await?;
    let Err(Error::Backend(error)) = opened else {
        return Err(Failure::new(format!("{opened:?}")));
    };
    ensure(
        error.outcome() == Effect::Indeterminate,
        format!("{error:?}"),
    )?;
    let text = Error::from(error).to_string();
    let expected = format!("no answer within 5.2s ({})", proxy.addr());
    ensure(text.ends_with(&expected), text)?;
    ensure(proxy.counts().dropped_replies > 0, "it did not fall silent")
}

pub(crate) async fn opening_tries_again_after_a_silence<D: Database>() -> Outcome {
    let server = D::start().await?;
    let (proxy, url) = through_a_proxy(&server).await?;
    fall_silent(&proxy);
    let client = within(Duration::from_secs(15), lockkit::connect(&url)).await??;
    ensure(proxy.counts().dropped_replies > 0, "it did not fall silent")?;
    client.lock("jobs")?.acquire().await?.release().await?;
    Ok(())
}
