//! Failovers that Sentinels make, and Sentinels that are away or wrong.

use std::time::Duration;

use conformance_tests::proxy::{Direction, Flow, Proxy};
use conformance_tests::servers::{Certificates, FakeSentinel, MASTER, RedisServer, SentinelGroup};
use conformance_tests::task::{acquire, hand_over, soak_length, soon, until, within};
use conformance_tests::{Failure, Outcome, ensure};
use lockkit_core::{BackendError, Error, LockClient, Outcome as Effect};
use lockkit_redis::{RedisStore, RedisStoreBuilder};
use tokio::time::{Instant, sleep};

use crate::cluster::WAYS;
use crate::world::{LONG, client_of, usable_soon};

const SOON: Duration = Duration::from_secs(5);
const NAME: &str = "jobs/sentinel";

fn store(way: &str, ports: &[u16]) -> RedisStoreBuilder {
    let hosts = ports.iter().map(|&port| ("127.0.0.1", port));
    // How soon it is usable would hide behind a quarantine.
    let store = crate::world::store(way, 0).quarantine(None);
    store.sentinel(hosts, MASTER)
}

async fn client(way: &str, ports: &[u16]) -> Outcome<LockClient> {
    client_of(store(way, ports).connect().await?, LONG)
}

/// Why a store cannot be opened.
async fn refusal(ports: &[u16], name: &str) -> Outcome<BackendError> {
    let hosts = ports.iter().map(|&port| ("127.0.0.1", port));
    let opened = RedisStore::builder().sentinel(hosts, name).connect().await;
    let error = opened.err();
    error.ok_or_else(|| Failure::new("it was opened"))
}

/// When the server says that it is a master.
pub(crate) async fn promoted(server: &RedisServer) -> Outcome<Instant> {
    until("the replica is promoted", async || {
        // The promotion may end this connection.
        let state = server.ask(&["INFO", "replication"]).await;
        Ok(state.is_ok_and(|state| state.concat().contains("role:master")))
    })
    .await?;
    Ok(Instant::now())
}

/// Waits until the server has done a step for a client.
async fn holds(server: &RedisServer, key: &str) -> Outcome {
    until("the server has the hold", async || {
        Ok(server.ask(&["EXISTS", key]).await? == ["1"])
    })
    .await
}

/// How long after the promotion a client gets and releases a lock again.
async fn usable(client: &LockClient, promoted: Instant) -> Outcome<Duration> {
    let lock = client.lock("jobs/usable")?;
    within(SOON, lock.acquire()).await??.release().await?;
    Ok(promoted.elapsed())
}

pub(crate) async fn killed_master_keeps_replicated_holds_and_serves_waiters() -> Outcome {
    for way in WAYS {
        let group = SentinelGroup::forgetful().await?;
        let [master, replica] = group.servers();
        let holder = client(way, &group.ports()).await?;
        let other = client(way, &group.ports()).await?;
        let guard = holder.lock(NAME)?.acquire().await?;
        holds(replica, NAME).await?;
        let mut waiter = acquire(&other.lock(NAME)?);
        waiter.waits_for(Duration::from_millis(100)).await?;
        master.process().kill();
        let at = promoted(replica).await?;
        let took = usable(&holder, at).await?;
        println!("{way}: usable {took:?} after the promotion");
        waiter.waits_for(Duration::from_secs(1)).await?;
        guard.check()?;
        holds(replica, NAME).await?;
        let next = within(SOON, hand_over(guard, waiter)).await??;
        next.release().await?;
    }
    Ok(())
}

pub(crate) async fn usable_soon_after_each_promotion() -> Outcome {
    let mut times = Vec::new();
    // Twenty in a minute.
    let failovers = soak_length(Duration::from_secs(18))?.as_secs() / 3;
    for _ in 0..failovers {
        let group = SentinelGroup::forgetful().await?;
        let [master, replica] = group.servers();
        let client = client("fifo", &group.ports()).await?;
        client.lock(NAME)?.acquire().await?.release().await?;
        group.replicates().await?;
        master.process().kill();
        let lock = client.lock("jobs/usable")?;
        let (at, usable) = tokio::try_join!(promoted(replica), async {
            // An acquire would pause between its attempts.
            until("it is usable", async || {
                let Ok(Some(guard)) = lock.try_acquire().await else {
                    return Ok(false);
                };
                guard.release().await?;
                Ok(true)
            })
            .await?;
            Ok(Instant::now())
        })?;
        times.push(usable - at);
    }
    usable_soon(times)
}

/// The former master stays up for seconds, and accepts writes: only the Sentinels know better.
pub(crate) async fn idle_client_follows_a_graceful_failover() -> Outcome {
    for way in WAYS {
        let group = SentinelGroup::forgetful().await?;
        let [_, replica] = group.servers();
        let client = client(way, &group.ports()).await?;
        client.lock(NAME)?.acquire().await?.release().await?;
        group.replicates().await?;
        let before = replica.calls("role").await?;
        group.ask(0, &["SENTINEL", "FAILOVER", MASTER]).await?;
        let at = promoted(replica).await?;
        // Its handshake, without any request of the client.
        until("the client follows", async || {
            Ok(replica.calls("role").await? > before)
        })
        .await?;
        let took = at.elapsed();
        println!("{way}: an idle client followed after {took:?}");
        ensure(took < SOON, format!("{way}: {took:?}"))?;
        let guard = client.lock(NAME)?.acquire().await?;
        let key = replica.ask(&["EXISTS", NAME]).await?;
        ensure(key == ["1"], "the hold is not at the new master")?;
        guard.release().await?;
    }
    Ok(())
}

pub(crate) async fn frozen_master_that_comes_back_is_left() -> Outcome {
    for way in WAYS {
        let group = SentinelGroup::forgetful().await?;
        let [master, replica] = group.servers();
        let holder = client(way, &group.ports()).await?;
        let guard = holder.lock(NAME)?.acquire().await?;
        holds(replica, NAME).await?;
        master.process().stop()?;
        let at = promoted(replica).await?;
        sleep(Duration::from_millis(500)).await;
        master.process().resume()?;
        until("the client is at the new master", async || {
            let guard = holder.lock("jobs/other")?.acquire().await?;
            let there = replica.ask(&["EXISTS", "jobs/other"]).await? == ["1"];
            // The former master may have granted it.
            drop(guard.release().await);
            Ok(there)
        })
        .await?;
        let took = at.elapsed();
        println!("{way}: at the new master {took:?} after the promotion");
        ensure(took < SOON, format!("{way}: {took:?}"))?;
        guard.check()?;
        guard.release().await?;
        until("the hold has ended at the new master", async || {
            Ok(replica.ask(&["EXISTS", NAME]).await? == ["0"])
        })
        .await?;
    }
    Ok(())
}

pub(crate) async fn two_dead_sentinels_are_not_noticed() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let ports = group.ports();
    let connected = client("fifo", &ports).await?;
    let guard = connected.lock(NAME)?.acquire().await?;
    for sentinel in &group.sentinels()[..2] {
        sentinel.kill();
    }
    let before = connections(&group.servers()[0]).await?;
    // Each Sentinel is asked in that time.
    sleep(SOON + Duration::from_secs(1)).await;
    let after = connections(&group.servers()[0]).await?;
    ensure(after == before, format!("{before:?}, then {after:?}"))?;
    guard.check()?;
    guard.release().await?;
    let began = Instant::now();
    let new = client("fifo", &ports).await?;
    let took = began.elapsed();
    ensure(took < Duration::from_secs(1), format!("it took {took:?}"))?;
    new.lock(NAME)?.acquire().await?.release().await?;
    group.sentinels()[2].kill();
    sleep(SOON).await;
    connected.lock(NAME)?.acquire().await?.release().await?;
    let error = refusal(&ports, MASTER).await?;
    ensure(error.outcome() == Effect::Unavailable, error.to_string())
}

/// The connections of clients that wait for messages. Sentinels give theirs a name.
async fn connections(server: &RedisServer) -> Outcome<Vec<String>> {
    let clients: String = server.run(&["CLIENT", "LIST"]).await?;
    let ours = clients
        .lines()
        .filter(|line| line.contains(" name= ") && line.contains("sub=1"));
    let id = |line: &str| line.split(' ').next().map(str::to_owned);
    Ok(ours.filter_map(id).collect())
}

/// A client that would wait for Sentinels that do not answer for longer than `SOON`.
async fn patient(ports: &[u16]) -> Outcome<LockClient> {
    let store = store("fifo", ports).connect_timeout(SOON * 4);
    client_of(store.connect().await?, LONG)
}

/// The first two answers are at once and a majority.
pub(crate) async fn highest_epoch_wins_over_first_answers() -> Outcome {
    let (old, new) = (
        RedisServer::forgetful().await?,
        RedisServer::forgetful().await?,
    );
    let at = |server: &RedisServer| ([127, 0, 0, 1], server.port()).into();
    let naming = FakeSentinel::naming;
    let cut_off = naming(at(&old), 3, Duration::ZERO).await?;
    let slow = naming(at(&new), 4, Duration::from_millis(20)).await?;
    let silent = naming(at(&old), 5, LONG).await?;
    let ports = [cut_off.port(), slow.port(), silent.port()];
    let client = within(SOON, patient(&ports)).await??;
    let guard = client.lock(NAME)?.acquire().await?;
    holds(&new, NAME).await?;
    // The one that is cut off is asked in that time, too.
    sleep(SOON).await;
    let connections = new.calls("role").await?;
    ensure(connections == 1, format!("{connections} connections"))?;
    guard.check()?;
    guard.release().await?;
    Ok(())
}

/// One answers, the other does not: the first is believed after 200 ms. A later one with a higher epoch is followed.
pub(crate) async fn later_epoch_is_followed() -> Outcome {
    let (old, new) = (
        RedisServer::forgetful().await?,
        RedisServer::forgetful().await?,
    );
    let at = |server: &RedisServer| ([127, 0, 0, 1], server.port()).into();
    let cut_off = FakeSentinel::naming(at(&old), 3, Duration::ZERO).await?;
    let late = FakeSentinel::naming(at(&new), 4, Duration::ZERO).await?;
    let way = Proxy::start(([127, 0, 0, 1], late.port()).into()).await?;
    way.flow(Direction::Reply, Flow::Hold);
    let ports = [cut_off.port(), way.addr().port()];
    let client = within(SOON, patient(&ports)).await??;
    client.lock(NAME)?.acquire().await?.release().await?;
    let asked = old.calls("role").await?;
    ensure(asked == 1, "it was not believed")?;
    way.heal();
    until("the client leaves the old master", async || {
        let there = old.ask(&["CLIENT", "LIST"]).await?.concat();
        Ok(!there.contains("sub=1"))
    })
    .await
}

/// A former master serves on for ten seconds.
pub(crate) async fn silent_sentinels_delay_no_failover() -> Outcome {
    let (old, new) = (
        RedisServer::forgetful().await?,
        RedisServer::forgetful().await?,
    );
    let at = |server: &RedisServer| ([127, 0, 0, 1], server.port()).into();
    let (mut fakes, mut ways) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let fake = FakeSentinel::naming(at(&old), 1, Duration::ZERO).await?;
        ways.push(Proxy::start(([127, 0, 0, 1], fake.port()).into()).await?);
        fakes.push(fake);
    }
    let ports: Vec<_> = ways.iter().map(|way| way.addr().port()).collect();
    let client = within(SOON, patient(&ports)).await??;
    client.lock(NAME)?.acquire().await?.release().await?;
    for way in &ways[..2] {
        way.flow(Direction::Reply, Flow::Hold);
    }
    fakes[2].name(at(&new), 2);
    let failed_over = Instant::now();
    until("the client leaves the old master", async || {
        let there = old.ask(&["CLIENT", "LIST"]).await?.concat();
        Ok(!there.contains("sub=1"))
    })
    .await?;
    let took = failed_over.elapsed();
    ensure(took < Duration::from_secs(4), format!("{took:?}"))
}

pub(crate) async fn sentinels_that_are_restarted_in_a_circle_are_not_noticed() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let (holder, other) = (
        client("fifo", &group.ports()).await?,
        client("fifo", &group.ports()).await?,
    );
    let guard = holder.lock(NAME)?.acquire().await?;
    let mut waiter = acquire(&other.lock(NAME)?);
    waiter.waits_for(Duration::from_millis(100)).await?;
    let asked = group.servers()[0].calls("role").await?;
    for sentinel in group.sentinels() {
        sentinel.kill();
        sleep(Duration::from_millis(300)).await;
        sentinel.restart()?;
        group.ready().await?;
    }
    guard.check()?;
    let next = within(SOON, hand_over(guard, waiter)).await??;
    next.release().await?;
    let connected = group.servers()[0].calls("role").await? - asked;
    ensure(connected == 0, format!("{connected} new connections"))?;
    let newcomer = within(SOON, client("fifo", &group.ports())).await??;
    newcomer.lock(NAME)?.acquire().await?.release().await?;
    Ok(())
}

/// The Sentinel names a new master only when it is asked anew: the epoch stays.
pub(crate) async fn read_only_reply_makes_the_client_ask_again() -> Outcome {
    let old = RedisServer::forgetful().await?;
    let new = RedisServer::forgetful().await?;
    let at = |server: &RedisServer| ([127, 0, 0, 1], server.port()).into();
    for way in WAYS {
        let sentinel = FakeSentinel::naming(at(&old), 1, Duration::ZERO).await?;
        let client = client(way, &[sentinel.port()]).await?;
        client.lock(NAME)?.acquire().await?.release().await?;
        let port = new.port().to_string();
        old.ask(&["REPLICAOF", "127.0.0.1", &port]).await?;
        sentinel.name(at(&new), 1);
        let guard = within(SOON, client.lock(NAME)?.acquire()).await??;
        holds(&new, NAME).await?;
        guard.release().await?;
        old.ask(&["REPLICAOF", "NO", "ONE"]).await?;
    }
    Ok(())
}

pub(crate) async fn server_that_is_no_master_is_refused() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let replica = ([127, 0, 0, 1], group.servers()[1].port()).into();
    let fake = FakeSentinel::naming(replica, 1, Duration::ZERO).await?;
    let error = refusal(&[fake.port()], MASTER).await?;
    ensure(error.outcome() == Effect::Unavailable, error.to_string())?;
    let told = Failure::from(error).to_string();
    ensure(told.contains("is slave"), told)
}

pub(crate) async fn unknown_name_is_refused_with_the_known_ones() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let error = refusal(&group.ports(), "orders").await?;
    ensure(error.outcome() == Effect::Rejected, error.to_string())?;
    let told = Failure::from(error).to_string();
    let names = told.contains("`orders`") && told.contains("know `locks`");
    ensure(names, told)
}

pub(crate) async fn no_answer_of_any_sentinel_is_unavailable() -> Outcome {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let closed = conformance_tests::servers::free_port()?;
    let began = Instant::now();
    let error = refusal(&[silent.local_addr()?.port(), closed], MASTER).await?;
    ensure(error.outcome() == Effect::Unavailable, error.to_string())?;
    let took = began.elapsed();
    // The default of `connect_timeout`.
    ensure(took <= Duration::from_millis(2500), format!("{took:?}"))?;
    let told = Failure::from(error).to_string();
    ensure(told.contains(&closed.to_string()), told)
}

/// Those that are away may know the name.
pub(crate) async fn name_unknown_to_one_sentinel_is_unavailable_while_others_are_away() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let free = conformance_tests::servers::free_port;
    let ports = [group.ports()[0], free()?, free()?];
    let error = refusal(&ports, "orders").await?;
    ensure(error.outcome() == Effect::Unavailable, error.to_string())?;
    let told = Failure::from(error).to_string();
    let both = told.contains("know `locks`") && told.contains(&ports[1].to_string());
    ensure(both, told)
}

/// Those that are slow may let this user in.
pub(crate) async fn refusal_of_one_sentinel_is_unavailable_while_others_are_slow() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    let (mut ways, mut ports) = (Vec::new(), Vec::new());
    for (at, port) in group.ports().into_iter().enumerate() {
        let password = if at == 0 { ">another" } else { ">open-sesame" };
        let words = ["ACL", "SETUSER", "default", "resetpass", password];
        group.ask(at, &words).await?;
        let way = Proxy::start(([127, 0, 0, 1], port).into()).await?;
        if at > 0 {
            // They let it in, but do not answer within a third of `connect_timeout`.
            way.delay_both(Duration::from_millis(250));
        }
        ports.push(way.addr().port());
        ways.push(way);
    }
    let store = store("fifo", &ports).sentinel_password("open-sesame");
    let error = store.connect().await.err();
    let error = error.ok_or_else(|| Failure::new("it was opened"))?;
    ensure(error.outcome() == Effect::Unavailable, error.to_string())
}

pub(crate) async fn sentinels_with_a_password_get_theirs() -> Outcome {
    let group = SentinelGroup::forgetful().await?;
    for sentinel in 0..3 {
        let words = ["ACL", "SETUSER", "default", "resetpass", ">open-sesame"];
        group.ask(sentinel, &words).await?;
    }
    let error = refusal(&group.ports(), MASTER).await?;
    ensure(error.outcome() == Effect::Rejected, error.to_string())?;
    let told = Failure::from(error).to_string();
    ensure(told.contains("give `sentinel_password=`"), told)?;
    let wrong = store("fifo", &group.ports()).sentinel_password("hunter2");
    let shown = format!("{wrong:?} {:?}", wrong.clone().connect().await.err());
    ensure(!shown.contains("hunter2"), shown)?;
    let url = format!("{}?sentinel_password=open-sesame", group.url());
    let client = soon(lockkit::connect(url)).await??;
    client.lock(NAME)?.acquire().await?.release().await?;
    Ok(())
}

pub(crate) async fn failover_with_tls() -> Outcome {
    let certificates = Certificates::make()?;
    let group = SentinelGroup::secure(&certificates).await?;
    let url = format!("{}?quarantine=off", group.secure_url());
    refuses_strangers(&url).await?;
    let url = format!("{url}&ca={}", certificates.path("ca.crt").display());
    let client = soon(lockkit::connect(url)).await??;
    let [master, replica] = group.servers();
    let guard = client.lock(NAME)?.acquire().await?;
    holds(replica, NAME).await?;
    master.process().kill();
    promoted(replica).await?;
    let other = within(SOON, client.lock("jobs/other")?.acquire()).await??;
    guard.check()?;
    guard.release().await?;
    other.release().await?;
    Ok(())
}

/// A server is not trusted without the certificate that vouches for it.
pub(crate) async fn refuses_strangers(url: &str) -> Outcome {
    let stranger = lockkit::connect(url).await;
    let Err(Error::Backend(error)) = stranger else {
        return Err(Failure::new(format!("{stranger:?}")));
    };
    let rejected = error.outcome() == Effect::Rejected;
    let told = Failure::from(error).to_string();
    ensure(rejected && told.contains("peer certificate"), told)
}
