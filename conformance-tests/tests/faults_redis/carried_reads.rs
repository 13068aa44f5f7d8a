//! What a section that has waited reads: it comes with the grant, if the section before reads the same.

use std::time::Duration;

use conformance_tests::servers::RedisServer;
use conformance_tests::task::{spawn, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::{Error, Lock};
use lockkit_redis::{Command, Entered, Reply, Section};

use crate::world::{LONG, client_at};

const SOON: Duration = Duration::from_secs(5);
const NAME: &str = "a name\nof two lines";
const STATE: &str = "state";

pub(crate) fn add(suite: TestSuite) -> TestSuite {
    suite
        .test(grant_carries_what_the_last_commit_wrote)
        .test(carried_replies_are_those_of_a_request)
        .test(what_does_not_fit_is_read_by_another_request)
        .test(error_of_a_carried_read_frees_the_lock)
}

fn command(words: &[&str]) -> Command {
    let [verb, rest @ ..] = words else {
        return Command::new("");
    };
    rest.iter().fold(Command::new(verb), Command::arg)
}

fn get() -> Command {
    command(&["GET", STATE])
}

/// A lock of a client of its own.
async fn lock(server: &RedisServer, way: &str) -> Outcome<Lock> {
    let client = client_at(way, server.port(), LONG).await?;
    Ok(client.lock(NAME)?)
}

type Entering = Result<(Entered, Vec<Reply>), Error>;

/// Enters a section while another one holds, which then commits. Returns what came of it, and how many requests there
/// were from then on.
async fn after(
    server: &RedisServer,
    entered: Entered,
    written: &[Command],
    next: &Section,
    asker: &Lock,
) -> Outcome<(Entering, u64)> {
    let next = next.clone();
    let waiting = spawn(async move { next.enter().await });
    until("it waits", async || {
        let state = asker.inspect().await?;
        Ok(state.and_then(|state| state.waiters) == Some(1))
    })
    .await?;
    let before = server.calls("evalsha").await?;
    entered.commit(written).await?;
    let entering = within(SOON, waiting.soon()).await??;
    Ok((entering, server.calls("evalsha").await? - before))
}

/// The requests of the commit and of the entry behind it; in some rounds there is a recheck as well.
async fn fewest_requests(server: &RedisServer, way: &str, reads: [&[Command]; 2]) -> Outcome<u64> {
    let section = async |reads: &[Command]| {
        let section = Section::of(&lock(server, way).await?);
        let sections = reads.iter().cloned().fold(section, Section::read);
        Outcome::Ok(sections)
    };
    let (holder, waiter) = (section(reads[0]).await?, section(reads[1]).await?);
    let asker = lock(server, way).await?;
    let mut fewest = u64::MAX;
    for turn in 0..6_i32 {
        let (entered, _) = holder.enter().await?;
        let state = turn.to_string();
        let written = [command(&["SET", STATE, &state])];
        let (entering, requests) = after(server, entered, &written, &waiter, &asker).await?;
        let (entered, replies) = entering?;
        let seen = replies.first().and_then(Reply::as_str);
        ensure(seen == Some(&state), format!("{way} {turn}: {seen:?}"))?;
        entered.check()?;
        entered.commit(&[]).await?;
        fewest = fewest.min(requests);
    }
    Ok(fewest)
}

async fn grant_carries_what_the_last_commit_wrote() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in ["fifo", "resp2"] {
        let reads: &[Command] = &[get()];
        let requests = fewest_requests(&server, way, [reads, reads]).await?;
        ensure(requests == 1, format!("{way}: {requests} requests"))?;
    }
    Ok(())
}

async fn what_does_not_fit_is_read_by_another_request() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let large = "x".repeat(70_000);
    server.ask(&["SET", "large", &large]).await?;
    let (one, two) = ([get()], [get(), command(&["STRLEN", "large"])]);
    let with_large = [get(), command(&["GET", "large"])];
    let cases: [(&str, [&[Command]; 2]); 3] = [
        ("other reads", [&one, &two]),
        ("no reads", [&[], &one]),
        ("large", [&with_large, &with_large]),
    ];
    for (what, reads) in cases {
        let requests = fewest_requests(&server, "fifo", reads).await?;
        ensure(requests == 2, format!("{what}: {requests} requests"))?;
    }
    Ok(())
}

/// Of every shape.
async fn carried_replies_are_those_of_a_request() -> Outcome {
    let server = RedisServer::forgetful().await?;
    server.ask(&["RPUSH", "list", "a", "", "c"]).await?;
    server.ask(&["XADD", "stream", "1-1", "k", "v"]).await?;
    server.ask(&["SET", "big", "9007199254740991"]).await?;
    let asker = lock(&server, "fifo").await?;
    let bytes = Command::new("SET").arg("bytes").arg(b"\0\r\n$-1\r\n\xff");
    let (entered, _) = Section::of(&asker).enter().await?;
    entered.commit(&[bytes]).await?;
    let reads: &[&[&str]] = &[
        &["GET", "bytes"],
        &["GET", "none"],
        &["LRANGE", "list", "0", "-1"],
        &["LRANGE", "none", "0", "-1"],
        &["XRANGE", "stream", "-", "+"],
        &["MGET", "bytes", "none", "big"],
        &["TYPE", "list"],
        &["STRLEN", "bytes"],
        &["TTL", "none"],
    ];
    for way in ["fifo", "resp2"] {
        let section = async || {
            let reads = reads.iter().map(|words| command(words));
            let section = Section::of(&lock(&server, way).await?);
            Outcome::Ok(reads.fold(section, Section::read))
        };
        let (section, other) = (section().await?, section().await?);
        let (entered, expected) = section.enter().await?;
        let (entering, _) = after(&server, entered, &[], &other, &asker).await?;
        let (entered, carried) = entering?;
        let same = carried == expected && carried.len() == 9;
        ensure(same, format!("{way}: {expected:?} {carried:?}"))?;
        entered.commit(&[]).await?;
    }
    Ok(())
}

async fn error_of_a_carried_read_frees_the_lock() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let [holder, asker] = [lock(&server, "fifo").await?, lock(&server, "fifo").await?];
    let section = Section::of(&holder).read(get());
    let waiter = Section::of(&lock(&server, "fifo").await?).read(get());
    let (entered, _) = section.enter().await?;
    let written = [
        command(&["DEL", STATE]),
        command(&["RPUSH", STATE, "a list"]),
    ];
    let (entering, _) = after(&server, entered, &written, &waiter, &asker).await?;
    let error = entering.err().map(|error| error.to_string());
    let told = error.as_ref().is_some_and(|it| it.contains("WRONGTYPE"));
    ensure(told, format!("{error:?}"))?;
    let guard = within(SOON, asker.try_acquire()).await??;
    let guard = guard.ok_or_else(|| Failure::new("it is not free"))?;
    guard.release().await?;
    Ok(())
}
