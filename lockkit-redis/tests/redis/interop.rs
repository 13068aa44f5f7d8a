//! Other programs on the same names, by what they send.
//!
//! The commands are those of Redisson's `RLock` and `RFencedLock` and of redis-py's `Lock`, as they
//! reach the server; the programs themselves run in the interoperability tests of the workspace.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockkit_core::{ClientId, LockClient};
use tokio::time::{Instant, timeout};

use crate::server::Server;

const RLOCK: &str = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
    return redis.call('pttl', KEYS[1])";
const FENCED: &str = "if redis.call('exists', KEYS[1]) == 0 then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) \
    return redis.call('incr', KEYS[2]) end return -1";
const UNLOCK: &str = "if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end \
    if redis.call('hincrby', KEYS[1], ARGV[1], -1) > 0 then return 0 end \
    redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], '0') return 1";

struct Redisson<'a> {
    server: &'a Server,
    owner: String,
}

impl<'a> Redisson<'a> {
    fn new(server: &'a Server) -> Self {
        Self {
            server,
            owner: format!("{}:52", ClientId::random()),
        }
    }

    /// Whether it got the lock.
    fn lock(&self, name: &str) -> bool {
        let answer = self
            .server
            .cli(&["EVAL", RLOCK, "1", name, "30000", &self.owner]);
        answer.is_empty()
    }

    fn lock_fenced(&self, name: &str, token: &str) -> i64 {
        let words = ["EVAL", FENCED, "2", name, token, "30000", &self.owner];
        self.server.cli(&words).parse().unwrap()
    }

    fn unlock(&self, name: &str, channel: &str) -> bool {
        self.server
            .cli(&["EVAL", UNLOCK, "2", name, channel, &self.owner])
            == "1"
    }

    /// Listens as its waiters do.
    fn listen(&self, channel: &str) -> Child {
        let listener = Command::new("redis-cli")
            .args(["-p", &self.server.port.to_string(), "SUBSCRIBE", channel])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        while !self
            .server
            .cli(&["PUBSUB", "NUMSUB", channel])
            .ends_with("\n1")
        {}
        listener
    }
}

#[tokio::test]
async fn excludes_redisson_and_is_excluded() {
    let server = Server::start(&[]).await;
    let client = LockClient::new(server.open().await).unwrap();
    let redisson = Redisson::new(&server);
    for (name, channel) in [
        ("orders/1", "redisson_lock__channel:{orders/1}"),
        ("a{b}c", "redisson_lock__channel:a{b}c"),
    ] {
        let lock = client.lock(name).unwrap();
        assert!(redisson.lock(name));
        assert!(redisson.lock(name), "it enters again");
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(!redisson.unlock(name, channel));
        assert!(lock.try_acquire().await.unwrap().is_none());
        assert!(redisson.unlock(name, channel));
        let guard = lock.acquire().await.unwrap();
        assert!(!redisson.lock(name));
        assert!(!redisson.unlock(name, channel), "ours is not its own");
        guard.check().unwrap();
        guard.release().await.unwrap();
        assert!(redisson.lock(name));
        redisson.unlock(name, channel);
    }
}

#[tokio::test]
async fn release_by_redisson_wakes_our_waiter() {
    let server = Server::start(&[]).await;
    let channel = "redisson_lock__channel:{a}";
    let redisson = Redisson::new(&server);
    for barging in [false, true] {
        let mut builder = server.builder();
        if barging {
            builder = builder.queueing(lockkit_core::Queueing::Barging);
        }
        let client = LockClient::new(builder.connect().await.unwrap()).unwrap();
        assert!(redisson.lock("a"));
        let lock = client.lock("a").unwrap();
        let waiter = tokio::runtime::Handle::current().spawn(async move { lock.acquire().await });
        while !server.cli(&["PUBSUB", "NUMSUB", channel]).ends_with("\n1") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The look after the subscription is over.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let start = Instant::now();
        assert!(redisson.unlock("a", channel));
        let guard = timeout(Duration::from_secs(10), waiter).await.unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        guard.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn our_release_wakes_waiter_of_redisson() {
    let server = Server::start(&[]).await;
    let client = LockClient::new(server.open().await).unwrap();
    let channel = "redisson_lock__channel:{a}";
    let mut listener = Redisson::new(&server).listen(channel);
    let lock = client.lock("a").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    let guard = lock.acquire().await.unwrap();
    lock.break_lock().await.unwrap();
    drop(guard);
    client.drain().await;
    server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    listener.kill().unwrap();
    let heard = listener.wait_with_output().unwrap().stdout;
    let heard = String::from_utf8(heard).unwrap();
    let messages = heard.matches(&format!("message\n{channel}\n0\n")).count();
    assert!(messages >= 2, "{heard}");
}

#[tokio::test]
async fn tokens_grow_across_both_libraries() {
    let server = Server::start(&[]).await;
    let client = LockClient::new(server.open().await).unwrap();
    let (redisson, lock) = (Redisson::new(&server), client.lock("a").unwrap());
    let (token, channel) = ("redisson_lock_token:{a}", "redisson_lock__channel:{a}");
    let mut last = 0;
    for _ in 0..4 {
        let theirs = redisson.lock_fenced("a", token);
        assert!(theirs > last, "{theirs} after {last}");
        assert!(redisson.unlock("a", channel));
        let guard = lock.acquire().await.unwrap();
        last = i64::try_from(guard.token().get()).unwrap();
        assert!(last > theirs, "{last} after {theirs}");
        guard.release().await.unwrap();
    }
    assert_eq!(
        server.cli(&["TTL", token]),
        "-1",
        "it was Redisson's, and stays"
    );
}

#[tokio::test]
async fn string_key_means_held() {
    let server = Server::start(&[]).await;
    let client = LockClient::new(server.open().await).unwrap();
    let lock = client.lock("a").unwrap();
    let start = Instant::now();
    assert_eq!(server.cli(&["SET", "a", "31f4", "NX", "PX", "3000"]), "OK");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let guard = timeout(Duration::from_secs(10), lock.acquire())
        .await
        .unwrap()
        .unwrap();
    assert!(
        start.elapsed() >= Duration::from_millis(2990),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(
        server.cli(&["SET", "a", "31f4", "NX", "PX", "3000"]),
        "",
        "ours excludes it"
    );
    guard.release().await.unwrap();
}
