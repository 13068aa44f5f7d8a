//! The lock of redis-py, a string made by SET NX, under the same names.

use std::process::ExitCode;
use std::time::Duration;

use conformance_tests::foreign::{Peer, RedisPy, missing};
use conformance_tests::servers::RedisServer;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Outcome, TestSuite, ensure};
use lockkit_core::{Error, Lease, LockClient};
use lockkit_redis::RedisStore;

const LONG: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    TestSuite::main(4, tests)
}

fn tests() -> TestSuite {
    TestSuite::new(
        "redis-py",
        missing(RedisServer::PROGRAM).or_else(RedisPy::missing),
    )
    .test(their_string_counts_as_held_and_is_not_changed)
    .test(our_hold_counts_as_held_for_them_and_is_not_changed)
    .test(our_waiter_gets_the_lock_after_their_release)
    .test(our_waiter_gets_the_lock_after_their_lease)
}

async fn world(recheck: Duration) -> Outcome<(RedisServer, Peer, LockClient)> {
    let server = RedisServer::forgetful().await?;
    let python = RedisPy::start(&server).await?;
    let store = RedisStore::builder()
        .tcp("127.0.0.1", server.port())
        .recheck(recheck)
        .connect()
        .await?;
    let client = LockClient::builder(store).lease(Lease::renewed(LONG));
    Ok((server, python, client.build()?))
}

async fn their_string_counts_as_held_and_is_not_changed() -> Outcome {
    let (server, mut python, client) = world(LONG).await?;
    let lock = client.lock("jobs")?;
    python.expect("a lock jobs 0 60000", "got").await?;
    let before: String = server.run(&["GET", "jobs"]).await?;
    ensure(lock.try_acquire().await?.is_none(), "both hold the lock")?;
    let waited = lock.acquire_timeout(Duration::from_millis(200)).await;
    let timeout = matches!(waited, Err(Error::Timeout { .. }));
    ensure(timeout, format!("it should have timed out: {waited:?}"))?;
    let broken = lock.break_lock().await;
    let refused = matches!(broken, Err(Error::Backend(_)));
    ensure(refused, format!("break returns {broken:?}"))?;
    let seen = lock.inspect().await?;
    let held = seen.is_some_and(|state| !state.holders.is_empty());
    ensure(held, "it looks free to an operator")?;
    let after: String = server.run(&["GET", "jobs"]).await?;
    let left: u64 = server.run(&["PTTL", "jobs"]).await?;
    ensure(after == before && left > 30_000, "the string has changed")?;
    // It is still theirs to release: redis-py raises an error if it is not.
    python.expect("a unlock jobs", "done").await?;
    let guard = lock.try_acquire().await?;
    ensure(guard.is_some(), "released, but not for us")
}

async fn our_hold_counts_as_held_for_them_and_is_not_changed() -> Outcome {
    let (_server, mut python, client) = world(LONG).await?;
    let guard = client.lock("jobs")?.acquire().await?;
    python.expect("a lock jobs 0 1000", "missed").await?;
    python.expect("a lock jobs 300 1000", "missed").await?;
    guard.check()?;
    guard.release().await?;
    python.expect("a lock jobs 0 1000", "got").await
}

/// redis-py publishes nothing: a poll finds the lock free.
async fn our_waiter_gets_the_lock_after_their_release() -> Outcome {
    let recheck = Duration::from_millis(500);
    let (_server, mut python, client) = world(recheck).await?;
    python.expect("a lock jobs 0 60000", "got").await?;
    let mut waiter = acquire(&client.lock("jobs")?);
    waiter.waits_for(recheck / 2).await?;
    python.expect("a unlock jobs", "done").await?;
    let limit = recheck + Duration::from_secs(3);
    within(limit, waiter.soon()).await???.release().await?;
    Ok(())
}

async fn our_waiter_gets_the_lock_after_their_lease() -> Outcome {
    let (server, mut python, client) = world(LONG).await?;
    python.expect("a lock jobs 0 1000", "got").await?;
    let waiter = acquire(&client.lock("jobs")?);
    let limit = Duration::from_secs(5);
    let guard = within(limit, waiter.soon()).await???;
    // redis-py expects a string. It gets an error and changes nothing.
    let released = python.ask("a unlock jobs").await?;
    ensure(released.starts_with("error"), released)?;
    let kind: String = server.run(&["TYPE", "jobs"]).await?;
    ensure(kind == "hash", "their release ended our hold")?;
    guard.check()?;
    Ok(())
}
