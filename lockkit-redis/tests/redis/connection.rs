//! What the store does when its connection ends, goes silent or refuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::replies::{Fate, Way};
use crate::server::{Server, free_port};
use lockkit_core::contract::{Attempt, DistributedLock, Renewal, Ticket, Wake};
use lockkit_core::{
    ClientId, FencingToken, HolderId, LockClient, LockName, Outcome, PollRange, Waiting,
};
use lockkit_redis::{Command, Fenced, FencedError, Protocol, RedisStore, Reply, Script};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

pub(crate) fn ticket(lock: &str) -> Ticket {
    let holder = HolderId::new(ClientId::random(), 1);
    Ticket::new(
        LockName::new(lock).unwrap(),
        holder,
        Duration::from_secs(30),
    )
}

/// Attempts until it is answered, as the client does.
async fn attempt(store: &RedisStore, ticket: &Ticket) -> Attempt {
    let began = Instant::now();
    loop {
        match timeout(Duration::from_secs(2), store.attempt(ticket)).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(error)) => assert_ne!(error.outcome(), Outcome::Rejected, "{error:?}"),
            Err(_) => {}
        }
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "the store never came back"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn signal(server: &Server, name: &str) {
    let pid = server.process.id().to_string();
    let done = std::process::Command::new("kill")
        .args([name, &pid])
        .status();
    assert!(done.unwrap().success());
}

fn is_granted(attempt: &Attempt) -> bool {
    matches!(attempt, Attempt::Granted(_))
}

async fn granted_by_push(store: &RedisStore, ticket: &Ticket) {
    let mut watch = store.watch(ticket).await.unwrap();
    loop {
        let wake = timeout(Duration::from_secs(10), watch.changed()).await;
        match wake.expect("nobody woke the waiter").unwrap() {
            Wake::Retry => {
                if is_granted(&attempt(store, ticket).await) {
                    return;
                }
            }
            _ => return,
        }
    }
}

#[tokio::test]
async fn pushes_grants_with_both_protocols() {
    let server = Server::start(&[]).await;
    for protocol in [Protocol::Auto, Protocol::Resp2, Protocol::Resp3] {
        let store = server.builder().protocol(protocol).connect().await.unwrap();
        let (holder, waiter) = (ticket("a"), ticket("a"));
        assert!(is_granted(&attempt(&store, &holder).await));
        assert!(!is_granted(&attempt(&store, &waiter).await));
        let mut watch = store.watch(&waiter).await.unwrap();
        store.release(&holder).await.unwrap();
        loop {
            let wake = timeout(Duration::from_secs(5), watch.changed()).await;
            match wake.expect("nothing came").unwrap() {
                Wake::Retry => {}
                Wake::Granted(_) => break,
                other => panic!("{other:?}"),
            }
        }
        store.release(&waiter).await.unwrap();
    }
}

#[tokio::test]
async fn killed_connection_wakes_all_waiters() {
    let server = Server::start(&[]).await;
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let store = server.builder().protocol(protocol).connect().await.unwrap();
        let other = server.open().await;
        let (holder, waiter) = (ticket("a"), ticket("a"));
        assert!(is_granted(&attempt(&other, &holder).await));
        assert!(!is_granted(&attempt(&store, &waiter).await));
        let mut watch = store.watch(&waiter).await.unwrap();
        while timeout(Duration::from_millis(200), watch.changed())
            .await
            .is_ok()
        {}
        server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let wake = timeout(Duration::from_secs(5), watch.changed()).await;
        assert_eq!(wake.expect("nobody woke the waiter").unwrap(), Wake::Retry);
        other.release(&holder).await.ok();
        drop(watch);
        granted_by_push(&store, &waiter).await;
        store.release(&waiter).await.unwrap();
    }
}

#[tokio::test]
async fn reconnects_after_restart() {
    let mut server = Server::start(&[]).await;
    let store = server.open().await;
    server.kill();
    let refused = timeout(Duration::from_secs(5), async {
        loop {
            let error = store.attempt(&ticket("a")).await.unwrap_err();
            if error.outcome() == Outcome::Unavailable {
                return error;
            }
        }
    });
    refused
        .await
        .expect("requests wait for a server that is gone");
    server.restart().await;
    assert!(is_granted(&attempt(&store, &ticket("b")).await));
}

#[tokio::test]
async fn replaces_connection_to_silent_server() {
    let server = Server::start(&[]).await;
    let store = server
        .builder()
        .response_timeout(Duration::from_millis(400))
        .connect_timeout(Duration::from_millis(400))
        .connect()
        .await
        .unwrap();
    assert!(is_granted(&attempt(&store, &ticket("a")).await));
    signal(&server, "-STOP");
    let silent = ticket("b");
    let began = Instant::now();
    let error = timeout(Duration::from_secs(5), store.attempt(&silent)).await;
    let error = error.expect("the silence is never noticed").unwrap_err();
    assert_eq!(error.outcome(), Outcome::Indeterminate);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    let began = Instant::now();
    let token = FencingToken::new(1).unwrap();
    let fenced = Fenced::new(&store, ticket("a"), token);
    let get = [Command::new("GET").arg("a")];
    let failed = timeout(Duration::from_secs(5), fenced.commands(&get)).await;
    let failed = failed.expect("the silence is never noticed");
    assert!(matches!(failed, Err(FencedError::Backend(_))), "{failed:?}");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    signal(&server, "-CONT");
    assert!(is_granted(&attempt(&store, &silent).await));
}

/// By default a connection to a server that pauses is kept for four seconds.
#[tokio::test]
async fn waits_for_a_server_that_pauses() {
    let server = Server::start(&[]).await;
    let way = Way::to(server.port).await;
    let store = RedisStore::builder().tcp("127.0.0.1", way.port);
    let store = store.connect().await.unwrap();
    let connections = way.connections.load(Ordering::Relaxed);
    signal(&server, "-STOP");
    let asked = ticket("a");
    let attempt = store.attempt(&asked);
    let resumed = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        signal(&server, "-CONT");
    };
    let (answer, ()) = tokio::join!(attempt, resumed);
    assert!(is_granted(&answer.unwrap()));
    assert_eq!(way.connections.load(Ordering::Relaxed), connections);
}

#[tokio::test]
async fn maps_refusals_to_outcomes() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let refused = async || store.attempt(&ticket("x")).await.unwrap_err().outcome();
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(refused().await, Outcome::Unavailable);
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(refused().await, Outcome::Unavailable);
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(refused().await, Outcome::Unavailable);
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    assert!(is_granted(&attempt(&store, &ticket("y")).await));
    assert_eq!(server.cli(&["EXISTS", "x"]), "0");
}

#[tokio::test]
async fn uses_user_and_database() {
    let server = Server::start(&[]).await;
    server.cli(&[
        "ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", "+@all",
    ]);
    server.cli(&["CONFIG", "SET", "requirepass", "other"]);
    for protocol in [Protocol::Auto, Protocol::Resp2] {
        let builder = server.builder().protocol(protocol).database(3);
        let error = builder
            .clone()
            .user("app")
            .password("wr0ng")
            .connect()
            .await
            .unwrap_err();
        assert_eq!(error.outcome(), Outcome::Rejected);
        let why = why(&error);
        assert!(!why.contains("wr0ng"), "{why}");
        let store = builder
            .user("app")
            .password("s3cret")
            .connect()
            .await
            .unwrap();
        let ticket = ticket("a");
        assert!(is_granted(&attempt(&store, &ticket).await));
        let in_three = server.cli(&[
            "--user", "app", "--pass", "s3cret", "-n", "3", "EXISTS", "a",
        ]);
        assert_eq!(in_three, "1");
        store.release(&ticket).await.unwrap();
    }
}

#[tokio::test]
async fn polling_needs_few_permissions() {
    let server = Server::start(&[]).await;
    let rights = "-@all +eval +evalsha +get +set +del +exists +hget +hset +hdel +pexpire +pttl +time \
                  +type +lindex +lrem +rpush +ping";
    let mut words = vec![
        "ACL",
        "SETUSER",
        "poor",
        "on",
        ">s3cret",
        "~*",
        "resetchannels",
    ];
    words.extend(rights.split_whitespace());
    assert_eq!(server.cli(&words), "OK");
    let builder = server.builder().user("poor").password("s3cret");
    let denied = builder.clone().connect().await.unwrap_err();
    assert_eq!(denied.outcome(), Outcome::Rejected);
    let pauses = PollRange::new(Duration::from_millis(5), Duration::from_millis(20));
    let store = builder.poll(pauses).connect().await.unwrap();
    assert_eq!(store.capabilities().waiting, Waiting::Poll);
    let client = LockClient::new(store.clone()).unwrap();
    let other = LockClient::new(server.open().await).unwrap();
    let guard = client.lock("a").unwrap().acquire().await.unwrap();
    let waiter = tokio::runtime::Handle::current()
        .spawn(async move { other.lock("a").unwrap().acquire().await });
    while server.cli(&["EXISTS", "lockkit_queue:{a}"]) == "0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    guard.release().await.unwrap();
    let fair = timeout(Duration::from_secs(10), waiter)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let waiter = tokio::runtime::Handle::current()
        .spawn(async move { client.lock("a").unwrap().acquire().await });
    fair.release().await.unwrap();
    let guard = timeout(Duration::from_secs(10), waiter).await.unwrap();
    drop(guard.unwrap().unwrap());
}

#[tokio::test]
async fn dropped_store_leaves_nothing_behind() {
    let server = Server::start(&[]).await;
    let clients = || server.cli(&["CLIENT", "LIST"]).lines().count();
    let before = clients();
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let store = server.builder().protocol(protocol).connect().await.unwrap();
        assert!(is_granted(&attempt(&store, &ticket("a")).await) || protocol == Protocol::Resp3);
        assert!(clients() > before);
        drop(store);
        timeout(Duration::from_secs(5), async {
            while clients() > before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .expect("a connection stayed open");
    }
}

#[tokio::test]
async fn fenced_work_runs_only_while_held() {
    let server = Server::start(&[]).await;
    let client = LockClient::builder(server.open().await).prefix("app:");
    let client = client.build().unwrap();
    let guard = client.lock("stock").unwrap().acquire().await.unwrap();
    let fenced = Fenced::by(&client, &guard).unwrap();
    let replies = fenced
        .commands(&[
            Command::new("SET").arg("left").arg("7"),
            Command::new("GET").arg("none"),
            Command::new("GET").arg("left"),
        ])
        .await
        .unwrap();
    assert_eq!(replies.len(), 3);
    assert_eq!(replies[1], Reply::Nil);
    assert_eq!(replies[2].as_str(), Some("7"));
    let take = Script::new("return redis.call('DECRBY', KEYS[1], ARGV[1])");
    let left = fenced.script(&take, &["left"], &[b"2"]).await.unwrap();
    assert_eq!(left.as_int(), Some(5));
    server.cli(&["SCRIPT", "FLUSH"]);
    let left = fenced.script(&take, &["left"], &[b"2"]).await.unwrap();
    assert_eq!(left.as_int(), Some(3));
    let many: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let many: Vec<&[u8]> = many.iter().map(String::as_bytes).collect();
    let last = Script::new("return ARGV[#ARGV]");
    let last = fenced.script(&last, &[], &many).await.unwrap();
    assert_eq!(last.as_str(), Some("19999"));
    let push = Command::new("RPUSH").arg("list");
    let push = many.iter().take(7_000).fold(push, Command::arg);
    let pushed = fenced.commands(&[push]).await.unwrap();
    assert_eq!(pushed[0].as_int(), Some(7_000));
    let failed = fenced
        .commands(&[Command::new("LPUSH").arg("left").arg("x")])
        .await;
    assert!(matches!(failed, Err(FencedError::Backend(_))), "{failed:?}");

    server.cli(&["DEL", "app:stock"]);
    let refused = fenced.script(&take, &["left"], &[b"2"]).await;
    assert!(matches!(refused, Err(FencedError::Fenced)), "{refused:?}");
    let refused = fenced.commands(&[Command::new("DEL").arg("left")]).await;
    assert!(matches!(refused, Err(FencedError::Fenced)), "{refused:?}");
    assert_eq!(server.cli(&["GET", "left"]), "3");
}

pub(crate) fn why(error: &lockkit_core::BackendError) -> String {
    std::error::Error::source(error).unwrap().to_string()
}

#[tokio::test]
async fn leaves_a_demoted_primary() {
    let (old, new) = (Server::start(&[]).await, Server::start(&[]).await);
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let way = Way::to(old.port).await;
        let store = RedisStore::builder().tcp("127.0.0.1", way.port);
        let store = store.protocol(protocol).connect().await.unwrap();
        let client = LockClient::new(store).unwrap();
        drop(client.lock("before").unwrap().acquire().await.unwrap());
        old.cli(&["REPLICAOF", "127.0.0.1", &new.port.to_string()]);
        way.server.store(new.port, Ordering::Relaxed);
        let lock = client.lock("after").unwrap();
        let guard = timeout(Duration::from_secs(5), lock.acquire()).await;
        let guard = guard.expect("it stays with the old primary").unwrap();
        assert_eq!(new.cli(&["EXISTS", "after"]), "1");
        guard.release().await.unwrap();
        old.cli(&["REPLICAOF", "NO", "ONE"]);
    }
}

#[tokio::test]
async fn reconnects_to_read_only_server_once_a_second() {
    let server = Server::start(&[]).await;
    let way = Way::to(server.port).await;
    let store = RedisStore::builder().tcp("127.0.0.1", way.port);
    let store = store.connect().await.unwrap();
    server.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let (began, span) = (Instant::now(), Duration::from_millis(2500));
    while began.elapsed() < span {
        store.attempt(&ticket("a")).await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let connections = way.connections.load(Ordering::Relaxed);
    assert!((2..=4).contains(&connections), "{connections} connections");
}

#[tokio::test]
async fn pauses_between_connections_that_end_at_once() {
    let server = Server::start(&[]).await;
    let ends = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ends);
    // The last request of a handshake.
    let way = Way::with(server.port, move |request| {
        let last = request.windows(4).any(|word| word == b"INFO");
        if last && seen.load(Ordering::Relaxed) {
            Fate::Last
        } else {
            Fate::Passes
        }
    });
    let way = way.await;
    let store = RedisStore::builder().tcp("127.0.0.1", way.port);
    let store = store.connect().await.unwrap();
    ends.store(true, Ordering::Relaxed);
    server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let connections = way.connections.load(Ordering::Relaxed);
    assert!((3..=12).contains(&connections), "{connections} connections");
    ends.store(false, Ordering::Relaxed);
    assert!(is_granted(&attempt(&store, &ticket("a")).await));
}

#[tokio::test]
async fn connection_errors_name_the_address() {
    let refused = free_port();
    let error = RedisStore::builder().tcp("127.0.0.1", refused);
    let error = error.connect().await.unwrap_err();
    let expected = format!("connection refused (127.0.0.1:{refused})");
    assert_eq!(why(&error), expected);

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let error = RedisStore::builder().tcp("127.0.0.1", address.port());
    let error = error.connect_timeout(Duration::from_millis(200));
    let error = error.connect().await.unwrap_err();
    assert_eq!(
        why(&error),
        format!("no connection within 200ms ({address})")
    );

    // Hangs up in the handshake, as proxies do.
    let hangs_up = tokio::runtime::Handle::current().spawn(async move {
        loop {
            let (mut socket, _) = silent.accept().await.unwrap();
            let _ = tokio::io::AsyncReadExt::read(&mut socket, &mut [0; 1024]).await;
        }
    });
    let error = RedisStore::builder().tcp("127.0.0.1", address.port());
    let error = error.connect().await.unwrap_err();
    assert!(
        why(&error).contains(&address.to_string()),
        "{}",
        why(&error)
    );
    assert!(why(&error).contains("wake=poll"), "{}", why(&error));
    hangs_up.abort();

    // In the middle of everything.
    let server = Server::start(&[]).await;
    let way = Way::with(server.port, |request| {
        if request.windows(4).any(|word| word == b"EVAL") {
            Fate::CutBefore
        } else {
            Fate::Passes
        }
    });
    let way = way.await;
    let store = RedisStore::builder().tcp("127.0.0.1", way.port);
    let store = store.connect().await.unwrap();
    let error = store.attempt(&ticket("a")).await.unwrap_err();
    let address = format!("127.0.0.1:{}", way.port);
    assert!(why(&error).contains(&address), "{}", why(&error));
}

#[tokio::test]
async fn explains_a_missing_password() {
    let server = Server::start(&[]).await;
    server.cli(&["CONFIG", "SET", "requirepass", "sesam"]);
    let host = format!("127.0.0.1:{}", server.port);
    for (url, wrong) in [
        (format!("redis://sesam@{host}"), "a user and no password"),
        (format!("redis://{host}"), "neither user nor password"),
    ] {
        let mut parsed = url.parse().unwrap();
        let builder = lockkit_redis::RedisStoreBuilder::from_url(&mut parsed).unwrap();
        let error = builder.connect().await.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Rejected);
        let why = why(&error);
        assert!(why.contains("redis://:password@"), "{why}");
        assert!(why.contains(wrong) && !why.contains("sesam"), "{why}");
    }
}

#[tokio::test]
async fn refuses_a_cluster_node_when_connecting() {
    let server = Server::start_node().await;
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let error = server.builder().protocol(protocol).connect().await;
        let error = error.unwrap_err();
        assert_eq!(error.outcome(), Outcome::Rejected);
        assert!(why(&error).contains("Cluster"), "{}", why(&error));
    }
}

/// As behind a proxy that spreads keys over servers: two locks in one step are refused.
#[tokio::test]
async fn one_refused_renewal_does_not_affect_others() {
    let server = Server::start_node().await;
    assert_eq!(
        server.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]),
        "OK"
    );
    while !server
        .cli(&["CLUSTER", "INFO"])
        .contains("cluster_state:ok")
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let pauses = PollRange::new(Duration::from_millis(5), Duration::from_millis(20));
    let store = server.builder().poll(pauses).connect().await.unwrap();
    let tickets: Vec<Ticket> = (0..20).map(|n| ticket(&format!("lock-{n}"))).collect();
    for ticket in &tickets {
        assert!(is_granted(&attempt(&store, ticket).await));
    }
    server.cli(&["DEL", "lock-7"]);
    let answers = store.renew(&tickets).await;
    for (number, answer) in answers.into_iter().enumerate() {
        let expected = if number == 7 {
            Renewal::NotHeld
        } else {
            Renewal::renewed(tickets[number].ttl)
        };
        assert_eq!(answer.unwrap(), expected, "{number}");
    }
}

/// Each request asks what replicas have, and there is none.
#[tokio::test]
async fn missing_replica_does_not_end_the_connection() {
    let server = Server::start(&[]).await;
    let other = server.open().await;
    assert!(is_granted(&other.attempt(&ticket("held")).await.unwrap()));
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let way = Way::to(server.port).await;
        let store = RedisStore::builder().tcp("127.0.0.1", way.port).acks(1);
        let store = store.response_timeout(Duration::from_secs(1));
        let store = store.protocol(protocol).connect().await.unwrap();
        let waiter = ticket("held");
        let _watch = store.watch(&waiter).await.unwrap();
        assert!(!is_granted(&store.attempt(&waiter).await.unwrap()));
        let before = way.connections.load(Ordering::Relaxed);
        let attempts = futures_util::future::join_all((0..16).map(async |number| {
            let ticket = ticket(&format!("free/{protocol:?}/{number}"));
            loop {
                let limit = Duration::from_secs(1);
                let answer = timeout(limit, store.attempt(&ticket)).await;
                assert!(!matches!(answer, Ok(Ok(_))), "{answer:?}");
            }
        }));
        timeout(Duration::from_secs(4), attempts).await.unwrap_err();
        let after = way.connections.load(Ordering::Relaxed);
        assert_eq!(after, before, "{protocol:?}");
    }
}
