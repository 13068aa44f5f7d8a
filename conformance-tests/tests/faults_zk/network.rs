//! Replies that are lost, and connections that are cut.

use std::time::Duration;

use conformance_tests::proxy::{Dropped, Proxy};
use conformance_tests::servers::{ZkCommand, ZkServer};
use conformance_tests::task::{AT_ONCE, acquire, spawn, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::window;
use tokio::time::sleep;

use crate::nodes::{drop_many, is_free};
use crate::world::{LONG, Plot, SOON, TTL, client};

/// The numbers of requests on the wire.
const CREATE: i32 = 15;
const DELETE: i32 = 2;

/// Whether a read of the proxy has a request of this kind in it: length, number, kind.
pub(crate) fn asks(bytes: &[u8], kind: i32) -> bool {
    let mut rest = bytes;
    while let Some((head, after)) = rest.split_at_checked(4) {
        let length = i32::from_be_bytes(head.try_into().unwrap_or_default());
        let Some((request, next)) = usize::try_from(length)
            .ok()
            .and_then(|n| after.split_at_checked(n))
        else {
            return false;
        };
        if request.get(4..8) == Some(&kind.to_be_bytes()[..]) {
            return true;
        }
        rest = next;
    }
    false
}

async fn proxied(plot: &Plot) -> Outcome<Proxy> {
    Ok(Proxy::start(([127, 0, 0, 1], plot.port).into()).await?)
}

pub(crate) async fn create_without_a_reply_is_one_node() -> Outcome {
    let plot = Plot::new().await?;
    let proxy = proxied(&plot).await?;
    let lock = client(plot.builder_at(proxy.addr().port()))
        .await?
        .lock("jobs")?;
    let other = plot.lock().await?;
    lock.acquire().await?.release().await?;
    for (round, how) in [Dropped::Reset, Dropped::Silence, Dropped::Reset]
        .into_iter()
        .enumerate()
    {
        proxy.drop_reply(how, |bytes| asks(bytes, CREATE));
        let guard = if round == 1 {
            within(SOON, lock.try_acquire())
                .await??
                .ok_or_else(|| Failure::new("refused by its own node"))?
        } else {
            within(SOON, lock.acquire()).await??
        };
        let dropped = proxy.counts().dropped_replies;
        ensure(
            dropped == round as u64 + 1,
            format!("{dropped} replies were lost"),
        )?;
        plot.queued(1).await?;
        let state = other
            .inspect()
            .await?
            .ok_or_else(|| Failure::new("there is no holder"))?;
        ensure(state.token == Some(guard.token()), format!("{state:?}"))?;
        guard.release().await?;
        plot.queued(0).await?;
    }
    Ok(())
}

/// More paths than the client library can send in one request.
pub(crate) async fn many_watches_outlive_a_connection() -> Outcome {
    const MANY: usize = 500;
    /// So many have watches: their paths must fit into one request.
    const WATCHED: usize = 250;
    let server = ZkServer::start(&ZkCommand::system()).await?;
    let plot = Plot::on(&server).await?;
    let proxy = proxied(&plot).await?;
    let client = client(plot.builder_at(proxy.addr().port()).session(LONG)).await?;
    let names = (0..MANY).map(|number| format!("{number}-{}", "x".repeat(300)));
    let mut guards = Vec::new();
    for name in names {
        guards.push(client.lock(name)?.acquire().await?);
    }
    let watched = async || Ok(watches(&server).await? >= WATCHED);
    until("the holds have watches", watched).await?;
    proxy.reset();
    let other = client.lock("other")?;
    within(SOON * 2, other.acquire()).await??.release().await?;
    let made = proxy.counts().connections;
    ensure(made >= 2, format!("{made} connections"))?;
    until("they have watches again", watched).await?;
    for guard in &guards {
        guard.check()?;
    }
    let lost = guards.swap_remove(WATCHED / 2);
    let directory = format!("{}/{}", plot.root, lost.name());
    let [node] = &plot.bare.list_children(&directory).await?[..] else {
        return Err(Failure::new("a lock has not one node"));
    };
    let node = format!("{directory}/{node}");
    plot.bare.delete(&node, None).await?;
    within(AT_ONCE * 2, lost.lost()).await?;
    for guard in guards {
        within(SOON, guard.release()).await??;
    }
    Ok(())
}

/// How many watches the server has.
async fn watches(server: &ZkServer) -> Outcome<usize> {
    let told = server.four_letters("wchs").await?;
    let total = told
        .lines()
        .find_map(|line| line.strip_prefix("Total watches:"));
    let total = total.ok_or_else(|| Failure::new(told.clone()))?;
    Ok(total.trim().parse()?)
}

pub(crate) async fn release_without_a_reply_is_a_release() -> Outcome {
    let plot = Plot::new().await?;
    let proxy = proxied(&plot).await?;
    let lock = client(plot.builder_at(proxy.addr().port()))
        .await?
        .lock("jobs")?;
    for how in [Dropped::Reset, Dropped::Silence] {
        let guard = lock.acquire().await?;
        proxy.drop_reply(how, |bytes| asks(bytes, DELETE));
        within(SOON, guard.release()).await??;
        plot.queued(0).await?;
    }
    let dropped = proxy.counts().dropped_replies;
    ensure(dropped == 2, format!("{dropped} replies were lost"))
}

/// The time on the way counts: the session's lease began before.
pub(crate) async fn window_counts_from_the_last_ping() -> Outcome {
    let plot = Plot::new().await?;
    let proxy = proxied(&plot).await?;
    let far = client(plot.builder_at(proxy.addr().port()))
        .await?
        .lock("jobs")?;
    far.acquire().await?.release().await?;
    let way = Duration::from_millis(250);
    proxy.delay_both(way);
    for waits in [false, true] {
        let near = plot.lock().await?;
        let guard = if waits {
            let held = near.acquire().await?;
            let waiter = acquire(&far);
            plot.queued(2).await?;
            // Old enough that the answers of its attempt and its watch are there.
            sleep(way * 5).await;
            held.release().await?;
            within(SOON, waiter.soon()).await???
        } else {
            within(SOON, far.acquire()).await??
        };
        // The create went there and back, and the list after it; a waiter gets its wake-up on the way back.
        let age = if waits { way } else { way * 2 };
        let most = window(TTL * 11 / 20).saturating_sub(age);
        let believed = guard.remaining();
        ensure(
            believed <= most,
            format!("believes in {believed:?} of {most:?}"),
        )?;
        guard.release().await?;
    }
    Ok(())
}

/// A grant that comes with a deletion has most of the lease left, however long its waiter has waited.
pub(crate) async fn grant_after_a_long_wait_is_young() -> Outcome {
    let session = Duration::from_secs(12);
    let plot = Plot::new().await?;
    let held = plot.lock().await?.acquire().await?;
    let waiters = client(plot.builder().session(session)).await?;
    let waiter = acquire(&waiters.lock("jobs")?);
    plot.queued(2).await?;
    // Shorter than its next look, and longer than two heartbeats.
    sleep(session * 5 / 12).await;
    held.release().await?;
    let guard = within(SOON, waiter.soon()).await???;
    let left = guard.remaining();
    ensure(
        left > session / 3,
        format!("{left:?} of {session:?} is left"),
    )?;
    guard.release().await?;
    Ok(())
}

/// Connections are reset while four wait: all are served in the order in which they came, each once.
pub(crate) async fn waiters_keep_their_places_over_lost_connections() -> Outcome {
    let plot = Plot::new().await?;
    let proxy = proxied(&plot).await?;
    let held = plot.lock().await?.acquire().await?;
    let mut waiters = Vec::new();
    for place in 0..4 {
        let builder = plot.builder_at(proxy.addr().port()).session(LONG);
        let lock = client(builder).await?.lock("jobs")?;
        waiters.push(spawn(async move {
            let guard = lock.acquire().await?;
            let token = guard.token();
            guard.release().await?;
            Ok::<_, lockkit_core::Error>(token)
        }));
        plot.queued(place + 2).await?;
        proxy.reset();
    }
    proxy.reset();
    held.release().await?;
    sleep(Duration::from_millis(5)).await;
    proxy.reset();
    let mut tokens = Vec::new();
    for waiter in waiters {
        tokens.push(within(SOON, waiter.soon()).await???);
    }
    ensure(tokens.is_sorted(), format!("out of order: {tokens:?}"))?;
    let made = proxy.counts().connections;
    ensure(made >= 8, format!("{made} connections of four clients"))?;
    plot.queued(0).await
}

/// The same two hundred as on a good line, while every few creates lose their replies and connections.
pub(crate) async fn two_hundred_dropped_acquires_on_a_bad_link() -> Outcome {
    let plot = Plot::new().await?;
    let proxy = std::sync::Arc::new(proxied(&plot).await?);
    let builder = || plot.builder_at(proxy.addr().port()).session(LONG);
    let clients = [client(builder()).await?, client(builder()).await?];
    let line = std::sync::Arc::clone(&proxy);
    let mut bad = spawn(async move {
        loop {
            line.drop_reply(Dropped::Reset, |bytes| asks(bytes, CREATE));
            sleep(Duration::from_millis(40)).await;
        }
    });
    // Long enough for several cuts.
    for _ in 0..4 {
        drop_many(&clients, 50).await?;
        bad.waits_for(Duration::from_millis(100)).await?;
    }
    bad.cancel().await;
    proxy.heal();
    let lost = proxy.counts().dropped_replies;
    ensure(lost > 0, "no reply was lost")?;
    is_free(&plot, &clients).await
}
