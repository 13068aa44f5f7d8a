//! Guarded writes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use conformance_tests::history::{Op, Phase};
use conformance_tests::proxy::{Direction, Flow, Proxy};
use conformance_tests::taker::Taker;
use conformance_tests::task::{acquire, elsewhere, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{ClientId, Guard, LockClient, Outcome as Effect};
use lockkit_zk::{Fenced, FencedError, Write, Written};
use zookeeper_client::{Acls, CreateMode};

use crate::world::{Plot, SOON, TTL, client};

fn by<'a>(client: &'a LockClient, guard: &Guard) -> Outcome<Fenced<'a>> {
    Fenced::by(client, guard).ok_or_else(|| Failure::new("another store"))
}

fn refused(result: &Result<Vec<Written>, FencedError>) -> Outcome {
    ensure(
        matches!(result, Err(FencedError::Fenced)),
        format!("{result:?}"),
    )
}

pub(crate) async fn only_a_holder_writes() -> Outcome {
    let plot = Plot::new().await?;
    let (a, b) = (client(plot.builder()).await?, client(plot.builder()).await?);
    let guard = a.lock("jobs")?.acquire().await?;
    let stock = format!("{}/stock", plot.root);
    let fenced = by(&a, &guard)?;
    let done = fenced
        .write(&[Write::create(&stock, "7"), Write::set(&stock, "6")])
        .await?;
    ensure(
        done == [Written::Created, Written::Set { version: 1 }],
        format!("{done:?}"),
    )?;
    // All of it or nothing.
    let half = fenced
        .write(&[Write::set(&stock, "5"), Write::create(&stock, "")])
        .await;
    ensure(
        matches!(&half, Err(FencedError::Backend(error))
            if error.outcome() == Effect::Rejected && format!("{error:?}").contains("write 1 was")),
        format!("{half:?}"),
    )?;
    ensure(
        plot.bare.get_data(&stock).await?.0 == b"6",
        "half of it was written",
    )?;
    let ticket = guard.ticket().clone();
    b.lock("jobs")?.break_lock().await?;
    refused(&fenced.write(&[Write::set(&stock, "4")]).await)?;
    let next = within(SOON, b.lock("jobs")?.acquire()).await??;
    refused(&fenced.write(&[Write::set(&stock, "4")]).await)?;
    by(&b, &next)?.write(&[Write::set(&stock, "3")]).await?;
    drop(guard);
    a.drain().await;
    let store = a.store().ok_or_else(|| Failure::new("another store"))?;
    refused(
        &Fenced::new(store, ticket)
            .write(&[Write::set(&stock, "2")])
            .await,
    )?;
    ensure(
        plot.bare.get_data(&stock).await?.0 == b"3",
        "a stale holder wrote",
    )?;
    next.release().await?;
    Ok(())
}

/// Its line is silent for longer than its session; another holds meanwhile.
pub(crate) async fn holder_cut_off_past_its_ttl_writes_nothing() -> Outcome {
    let plot = Plot::new().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], plot.port).into()).await?;
    let paused = client(plot.builder_at(proxy.addr().port())).await?;
    let other = client(plot.builder()).await?;
    let guard = paused.lock("jobs")?.acquire().await?;
    let stock = format!("{}/stock", plot.root);
    by(&paused, &guard)?
        .write(&[Write::create(&stock, "7")])
        .await?;
    let waiter = acquire(&other.lock("jobs")?);
    plot.queued(2).await?;
    for direction in [Direction::Request, Direction::Reply] {
        proxy.flow(direction, Flow::Hold);
    }
    let next = within(TTL * 3 + SOON, waiter.soon()).await???;
    ensure(next.token() > guard.token(), "the token did not grow")?;
    ensure(guard.check().is_err(), "two believe that they hold")?;
    let fenced = by(&paused, &guard)?;
    let writes = [Write::set(&stock, "stale")];
    let (write, ()) = tokio::join!(within(SOON, fenced.write(&writes)), async { proxy.heal() });
    refused(&write?)?;
    by(&other, &next)?.write(&[Write::set(&stock, "6")]).await?;
    ensure(
        plot.bare.get_data(&stock).await?.0 == b"6",
        "a stale holder wrote",
    )?;
    next.release().await?;
    Ok(())
}

/// A process that is frozen while it holds, for longer than its session, writes when it resumes.
pub(crate) async fn holder_paused_past_its_ttl_writes_nothing() -> Outcome {
    let plot = Plot::new().await?;
    let name = format!("jobs-{}", ClientId::random());
    let node = format!("/{name}-written");
    plot.bare
        .create(
            &node,
            b"",
            &CreateMode::Persistent.with_acls(Acls::anyone_all()),
        )
        .await?;
    let program = Path::new(env!("CARGO_BIN_EXE_lock-taker"));
    let url = format!(
        "zk://127.0.0.1:{}/?root={}&ttl={}ms",
        plot.port,
        plot.root,
        TTL.as_millis()
    );
    let mut paused = Taker::start(program, &url, TTL).await?;
    let stale = paused.acquire(&name).await?;
    let wrote = paused.run("put").await?;
    ensure(wrote.phase == Phase::Ok, wrote.line())?;
    paused.stop()?;
    let client = client(plot.builder()).await?;
    let guard = within(TTL * 2 + SOON, client.lock(name.as_str())?.acquire()).await??;
    let token = guard.token().get();
    ensure(token > stale, "the token did not grow")?;
    let ours = token.to_string();
    by(&client, &guard)?
        .write(&[Write::set(&node, ours.as_str())])
        .await?;
    paused.resume()?;
    let refused = async {
        loop {
            let wrote = paused.run("put").await?;
            // Its connection was closed meanwhile: nothing is known of a write before it has another.
            if wrote.phase != Phase::Info {
                return Ok::<_, Failure>(wrote);
            }
        }
    };
    let wrote = within(SOON, refused).await??;
    ensure(
        wrote.op == Op::Write && wrote.phase == Phase::Fail,
        format!("not refused: {}", wrote.line()),
    )?;
    let kept = plot.bare.get_data(&node).await?.0;
    ensure(kept == ours.as_bytes(), "a stale holder wrote")?;
    guard.release().await?;
    Ok(())
}

/// The runtime of a caller ends while its request has no reply, and each time after one that met a new connection. The
/// runtime in which the store was opened has the session.
pub(crate) async fn guarded_writes_outlive_runtimes_of_callers() -> Outcome {
    let plot = Plot::new().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], plot.port).into()).await?;
    let client = client(plot.builder_at(proxy.addr().port())).await?;
    let guard = Arc::new(client.lock("jobs")?.acquire().await?);
    let stock = format!("{}/stock", plot.root);
    by(&client, &guard)?
        .write(&[Write::create(&stock, "7")])
        .await?;
    let write = |patience: Duration| {
        let (client, guard) = (client.clone(), Arc::clone(&guard));
        let writes = [Write::set(&stock, "6")];
        elsewhere(async move || {
            let fenced = by(&client, &guard)?;
            let written = async {
                // A connection that was reset is no answer.
                while let Err(failed) = fenced.write(&writes).await {
                    ensure(!matches!(failed, FencedError::Fenced), "it was refused")?;
                }
                Ok::<_, Failure>(())
            };
            Ok(within(patience, written).await.is_ok_and(|it| it.is_ok()))
        })
    };
    for turn in 0..2 {
        proxy.flow(Direction::Reply, Flow::Hold);
        let replied = write(Duration::from_millis(50)).await?;
        ensure(!replied, "there was a reply")?;
        proxy.heal();
        proxy.reset();
        ensure(write(SOON).await?, format!("{turn}: nothing was written"))?;
        let before = proxy.counts().connections;
        let other = client.lock("other")?;
        for _ in 0..2 {
            within(SOON, other.acquire()).await??.release().await?;
            ensure(write(SOON).await?, format!("{turn}: no further write"))?;
        }
        let after = proxy.counts().connections;
        let ended = format!("{turn}: {before} connections became {after}");
        ensure(after == before, ended)?;
    }
    guard.check()?;
    Ok(())
}
