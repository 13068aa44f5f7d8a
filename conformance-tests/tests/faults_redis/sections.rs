//! Sections: what is read with a grant, and written with a release, while replies are lost and callers go.

use std::path::Path;
use std::time::Duration;

use conformance_tests::foreign::missing;
use conformance_tests::proxy::{Direction, Dropped, Fate, Flow, Proxy};
use conformance_tests::section_history::SectionHistory;
use conformance_tests::servers::{RedisCluster, RedisServer, SentinelGroup};
use conformance_tests::task::{poll_times, soon, spawn, until, within};
use conformance_tests::{Failure, Outcome, TestSuite, ensure};
use lockkit_core::{Error, LockClient, Outcome as Effect};
use lockkit_redis::{Command, Entered, Fenced, FencedError, RedisStore, Reply, Script, Section};
use tokio::time::{sleep, timeout};

use crate::cluster;
use crate::world::{LONG, TTL, WAYS, client_at, client_of, impatient_at, only_tokens_left};

const SOON: Duration = Duration::from_secs(5);
/// Two failovers, until the former masters replicate.
const FAILOVERS: Duration = Duration::from_secs(25);
/// All keys are in its slot.
const NAME: &str = "{cart:7}";
const COUNTER: &str = "{cart:7}:counter";

pub(crate) fn tests() -> TestSuite {
    TestSuite::new("faults-of-redis", missing(RedisServer::PROGRAM))
        .test(sections_follow_each_other)
        .test(sections_follow_each_other_in_a_cluster)
        .test(sections_follow_each_other_behind_sentinels)
        .test(what_no_replica_has_is_indeterminate)
        .test(commit_without_a_reply_writes_once)
        .test(script_without_a_reply_is_run_once)
        .test(section_whose_lease_ended_writes_nothing)
        .test(section_writes_under_its_own_token_only)
        .test(section_dropped_at_any_moment_leaves_nothing)
        .test(section_never_takes_the_replies_of_another_grant)
        .test(section_needs_keys_in_the_slot_of_the_lock)
}

fn section(client: &LockClient) -> Outcome<Section> {
    let lock = client.lock(NAME)?;
    Ok(Section::of(&lock).read(Command::new("GET").arg(COUNTER)))
}

fn counted(replies: &[Reply]) -> i64 {
    replies.first().and_then(Reply::as_int).unwrap_or(0)
}

fn set(value: i64) -> Command {
    Command::new("SET").arg(COUNTER).arg(value.to_string())
}

fn incr() -> Command {
    Command::new("INCR").arg(COUNTER)
}

/// With sections in processes that are killed and stopped.
fn history(urls: impl IntoIterator<Item = String>) -> SectionHistory<'static> {
    SectionHistory::new(
        Path::new(env!("CARGO_BIN_EXE_lock-taker")),
        urls,
        Duration::from_millis(600),
    )
}

async fn sections_follow_each_other() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let behind = format!("redis://{}", proxy.addr());
    let urls = [
        format!("{}?recheck=500ms", server.url()),
        format!("{behind}?recheck=500ms&protocol=resp2"),
        format!("{behind}?recheck=500ms&queue=barging"),
        format!("{}?wake=poll&poll=5ms..50ms", server.url()),
    ];
    history(urls).behind(proxy).check().await
}

/// A failover as planned loses nothing that was acknowledged.
async fn sections_follow_each_other_in_a_cluster() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let history = history([format!("{}?quarantine=off&recheck=500ms", cluster.url())]);
    let failover = async {
        sleep(TTL).await;
        let master = cluster.master_of(history.name()).await?;
        cluster.fail_over_as_planned(master).await
    };
    let (checked, failed_over) = tokio::join!(history.check(), failover);
    failed_over.and(checked)
}

/// What no replica has is lost with the master, and nothing that was committed is.
async fn sections_follow_each_other_behind_sentinels() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let url = format!("{}?quarantine=off&acks=1&recheck=500ms", group.url());
    let history = history([url]).lasting(FAILOVERS);
    let failovers = async {
        sleep(TTL).await;
        group.lose_writes_and_fail_over().await?;
        sleep(TTL).await;
        group.fail_over_as_planned().await
    };
    let (checked, failed_over) = tokio::join!(history.check(), failovers);
    failed_over.and(checked)
}

async fn what_no_replica_has_is_indeterminate() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let store = lockkit::connect(format!("{}?quarantine=off&acks=1", group.url())).await?;
    let script = Script::new("return redis.call('INCR', KEYS[1])");
    let lock = |name| store.lock(format!("{NAME}/{name}"));
    let (committed, guarded) = (lock("a")?, lock("b")?);
    let (entered, _) = Section::of(&committed).enter().await?;
    let guard = guarded.acquire().await?;
    let fenced = Fenced::by(&store, &guard).ok_or_else(|| Failure::new("no store of Redis"))?;
    group.freeze_replica().await?;
    let unknown = |error: Option<FencedError>| match error {
        Some(FencedError::Backend(error)) => {
            let said = format!("{error:?}");
            ensure(error.outcome() == Effect::Indeterminate, said)
        }
        other => Err(Failure::new(format!("{other:?}"))),
    };
    unknown(entered.commit(&[incr()]).await.err())?;
    unknown(fenced.commands(&[incr()]).await.err())?;
    unknown(fenced.script(&script, &[COUNTER], &[]).await.err())?;
    let applied = Section::of(&lock("c")?)
        .apply(&script, &[COUNTER], &[])
        .await;
    match applied {
        Err(Error::Backend(error)) if error.outcome() == Effect::Indeterminate => Ok(()),
        other => Err(Failure::new(format!("{other:?}"))),
    }
}

async fn script_without_a_reply_is_run_once() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let script = Script::new("return redis.call('INCR', KEYS[1])");
    let unknown = Some(Effect::Indeterminate);
    let loading = Fate::Answer(b"-LOADING Redis is loading\r\n".to_vec());
    for (fate, reported, runs) in [
        (Fate::Drop(Dropped::Reset), unknown, 1),
        (Fate::Drop(Dropped::Silence), unknown, 1),
        (Fate::Cut, unknown, 0),
        (loading, None, 1),
    ] {
        let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
        let client = impatient_at("fifo", proxy.addr().port(), LONG).await?;
        let section = Section::of(&client.lock(NAME)?);
        // From here on the script is known.
        let before = section.apply(&script, &[COUNTER], &[]).await?;
        let mut fates = [fate].into_iter();
        // A PING of the client may be under way, whose reply is another one.
        proxy.judge(move |request| match is_ping(request) {
            true => Fate::Pass,
            false => fates.next().unwrap_or(Fate::Pass),
        });
        let applied = within(SOON, section.apply(&script, &[COUNTER], &[])).await?;
        let effect = match &applied {
            Err(Error::Backend(error)) => Some(error.outcome()),
            _ => None,
        };
        let now = server.ask(&["GET", COUNTER]).await?;
        let now = now.first().and_then(|now| now.parse::<i64>().ok());
        let run = now.zip(before.as_int()).map(|(now, before)| now - before);
        let fits = effect == reported && run == Some(runs);
        ensure(fits, format!("{applied:?}: {run:?} times"))?;
    }
    Ok(())
}

fn is_ping(request: &[u8]) -> bool {
    request.windows(4).any(|word| word == b"PING")
}

/// What becomes of the requests that commit, what is reported, and how often they were carried out.
struct Trial {
    fates: Vec<Fate>,
    /// Whether its second command fails.
    fails: bool,
    reported: Option<Effect>,
    written: i64,
}

fn trials() -> Vec<Trial> {
    let loading = || Fate::Answer(b"-LOADING Redis is loading\r\n".to_vec());
    let refused = Fate::Answer(b"-NOPERM this user has no permissions\r\n".to_vec());
    let then = |first: Fate, rest: Fate| {
        let rest = std::iter::repeat_n(rest, 100);
        std::iter::once(first).chain(rest).collect()
    };
    let trial = |fates: Vec<Fate>, reported, written| Trial {
        fates,
        fails: false,
        reported,
        written,
    };
    let failing = |fates: Vec<Fate>| Trial {
        fails: true,
        ..trial(fates, Some(Effect::Indeterminate), 1)
    };
    let (lost, silent) = (Fate::Drop(Dropped::Reset), Fate::Drop(Dropped::Silence));
    vec![
        failing(vec![]),
        failing(vec![Fate::Cut]),
        failing(vec![lost.clone()]),
        trial(vec![lost.clone()], Some(Effect::Indeterminate), 1),
        trial(vec![silent], Some(Effect::Indeterminate), 1),
        trial(vec![Fate::Cut], None, 1),
        trial(vec![loading()], None, 1),
        trial(
            vec![Fate::Cut, lost.clone()],
            Some(Effect::Indeterminate),
            1,
        ),
        // What is known of the last request says nothing of the first.
        trial(
            then(lost.clone(), loading()),
            Some(Effect::Indeterminate),
            1,
        ),
        trial(vec![lost, refused.clone()], Some(Effect::Indeterminate), 1),
        trial(then(loading(), loading()), Some(Effect::Unavailable), 0),
        trial(then(Fate::Cut, Fate::Cut), Some(Effect::Indeterminate), 0),
        trial(vec![refused], Some(Effect::Rejected), 0),
    ]
}

async fn commit_without_a_reply_writes_once() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for (number, trial) in trials().into_iter().enumerate() {
        let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
        let client = impatient_at("fifo", proxy.addr().port(), LONG).await?;
        let reader = section(&client_at("fifo", server.port(), LONG).await?)?;
        let section = section(&client)?;
        // From here on the script is known.
        section.enter().await?.0.commit(&[set(0)]).await?;
        let (entered, _) = within(SOON, section.enter()).await??;
        let mut fates = trial.fates.into_iter();
        proxy.judge(move |request| {
            let commits = request.windows(4).any(|word| word == b"INCR");
            let fate = commits.then(|| fates.next()).flatten();
            fate.unwrap_or(Fate::Pass)
        });
        let wrong = Command::new("RPUSH").arg(COUNTER).arg("x");
        let mut commands = vec![incr()];
        commands.extend(trial.fails.then_some(wrong));
        let result = within(SOON, entered.commit(&commands)).await?;
        let reported = match &result {
            Ok(_) => None,
            Err(FencedError::Backend(error)) => Some(error.outcome()),
            Err(other) => return Err(Failure::new(format!("{number}: {other:?}"))),
        };
        ensure(
            reported == trial.reported,
            format!("{number}: {reported:?} {result:?}"),
        )?;
        proxy.heal();
        soon(client.drain()).await?;
        let (after, replies) = within(SOON, reader.enter()).await??;
        let written = counted(&replies);
        ensure(
            written == trial.written,
            format!("{number}: written {written} times"),
        )?;
        after.into_guard().release().await?;
    }
    Ok(())
}

async fn section_whose_lease_ended_writes_nothing() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
    let client = impatient_at("fifo", proxy.addr().port(), TTL).await?;
    let (late, direct) = (
        section(&client)?,
        section(&client_at("fifo", server.port(), TTL).await?)?,
    );
    let (entered, _) = late.enter().await?;
    // The commit is on its way when the lease ends.
    proxy.delay(Direction::Request, TTL * 2);
    let committing = spawn(async move { entered.commit(&[set(1)]).await });
    let (next, replies) = within(SOON, direct.enter()).await??;
    ensure(counted(&replies) == 0, format!("{replies:?}"))?;
    next.commit(&[set(7)]).await?;
    let committed = committing.soon().await?;
    ensure(committed.is_err(), "a late commit was carried out")?;
    sleep(TTL).await;
    proxy.heal();
    soon(client.drain()).await?;
    let (entered, replies) = direct.enter().await?;
    ensure(counted(&replies) == 7, format!("{replies:?}"))?;
    // Nor does one of a client that knows that its lease has ended.
    let (held, _) = {
        entered.into_guard().release().await?;
        late.enter().await?
    };
    proxy.flow(Direction::Request, Flow::Discard);
    soon(held.lost()).await?;
    let refused = held.commit(&[set(1)]).await;
    ensure(
        matches!(refused, Err(FencedError::Fenced)),
        format!("{refused:?}"),
    )?;
    let (entered, replies) = within(SOON, direct.enter()).await??;
    ensure(counted(&replies) == 7, format!("{replies:?}"))?;
    entered.into_guard().release().await?;
    Ok(())
}

async fn section_writes_under_its_own_token_only() -> Outcome {
    let server = RedisServer::forgetful().await?;
    let section = section(&client_at("fifo", server.port(), LONG).await?)?;
    let (entered, _) = section.enter().await?;
    let holder = entered.holder().to_string();
    server.ask(&["HSET", NAME, &holder, "7 x"]).await?;
    let refused = entered.commit(&[set(1)]).await;
    ensure(
        matches!(refused, Err(FencedError::Fenced)),
        format!("{refused:?}"),
    )?;
    let (entered, replies) = within(SOON, section.enter()).await??;
    ensure(replies == [Reply::Nil], format!("{replies:?}"))?;
    entered.commit(&[]).await?;
    Ok(())
}

async fn section_dropped_at_any_moment_leaves_nothing() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let client = client_at(way, server.port(), LONG).await?;
        let other = client_at(way, server.port(), LONG).await?;
        let (dropped, other) = (section(&client)?, section(&other)?);
        let mut before = 0;
        for polls in 0..12 {
            for waits in [false, true] {
                let held = match waits {
                    true => Some(other.enter().await?.0),
                    false => None,
                };
                let entering = spawn({
                    let dropped = dropped.clone();
                    async move { poll_times(dropped.enter(), polls).await }
                });
                if let Some(held) = held {
                    sleep(Duration::from_micros(300)).await;
                    held.commit(&[]).await?;
                }
                drop(entering.soon().await?);
                soon(client.drain()).await?;
                let free = other.try_enter().await?;
                let Some((entered, _)) = free else {
                    return Err(Failure::new(format!("{way}: held after {polls} polls")));
                };
                entered.commit(&[]).await?;
            }
            let (entered, _): (Entered, _) = dropped.enter().await?;
            let done = poll_times(entered.commit(&[incr()]), polls).await;
            soon(client.drain()).await?;
            let Some((entered, replies)) = other.try_enter().await? else {
                return Err(Failure::new(format!("{way}: held after {polls} polls")));
            };
            let written = counted(&replies) - before;
            let fits = match done {
                Some(_) => written == 1,
                None => written <= 1,
            };
            ensure(fits, format!("{way}: written {written} times"))?;
            before = counted(&replies);
            entered.commit(&[]).await?;
        }
        for _ in 0..50 {
            let span = Duration::from_micros(fastrand::u64(0..2_000));
            drop(timeout(span, dropped.enter()).await);
        }
        soon(client.drain()).await?;
        ensure(other.try_enter().await?.is_some(), "it is held")?;
        server.ask(&["DEL", COUNTER]).await?;
    }
    only_tokens_left(&server).await
}

/// The replies to a caller that has gone stay behind, and another one of the section is granted by a message.
async fn section_never_takes_the_replies_of_another_grant() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        let client = client_at(way, server.port(), LONG).await?;
        let other = section(&client_at(way, server.port(), LONG).await?)?;
        // Its commit reads something else, so that the grant of the next one comes without replies.
        let other = other.read(Command::new("TTL").arg(COUNTER));
        let lock = client.lock(NAME)?;
        let section = section(&client)?;
        drop(poll_times(section.enter(), 1).await);
        soon(client.drain()).await?;
        let (entered, replies) = other.enter().await?;
        let next = counted(&replies) + 1;
        let waiting = spawn(async move { section.enter().await });
        if way == "fifo" || way == "resp2" {
            until("it waits", async || {
                let state = lock.inspect().await?;
                Ok(state.and_then(|state| state.waiters) == Some(1))
            })
            .await?;
        }
        entered.commit(&[set(next)]).await?;
        let (entered, replies) = within(SOON, waiting.soon()).await???;
        ensure(counted(&replies) == next, format!("{way}: {replies:?}"))?;
        entered.commit(&[]).await?;
    }
    Ok(())
}

async fn section_needs_keys_in_the_slot_of_the_lock() -> Outcome {
    let cluster = RedisCluster::forgetful().await?;
    let store: RedisStore = cluster::all(&cluster, "fifo")
        .quarantine(None)
        .connect()
        .await?;
    let lock = client_of(store, LONG)?.lock(NAME)?;
    let master = cluster.master_of(NAME).await?;
    let mut elsewhere = None;
    for number in 0..100 {
        let key = format!("{{cart:{number}}}:state");
        if cluster.master_of(&key).await? != master {
            elsewhere = Some(key);
            break;
        }
    }
    let key = elsewhere.ok_or_else(|| Failure::new("there is one master"))?;
    let foreign = || Command::new("SET").arg(&key).arg("1");
    let refused = Section::of(&lock).read(foreign()).enter().await.err();
    let text = refused.map(|error| error.to_string()).unwrap_or_default();
    ensure(text.contains("`{tag}`"), text)?;
    ensure(lock.inspect().await?.is_none(), "the lock is held")?;
    let (entered, _) = Section::of(&lock).enter().await?;
    let refused = entered.commit(&[foreign()]).await;
    let Err(FencedError::Backend(error)) = refused else {
        return Err(Failure::new(format!("{refused:?}")));
    };
    let text = Failure::from(error).to_string();
    ensure(text.contains("`{tag}`"), text)?;
    ensure(lock.inspect().await?.is_none(), "the lock is held")
}
