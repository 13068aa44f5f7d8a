//! Users of the server's access lists who may do little.

use std::time::Duration;

use lockkit_core::LockClient;
use lockkit_core::contract::{Attempt, DistributedLock, Wake};
use lockkit_redis::{Protocol, RedisStore};
use tokio::time::timeout;

use crate::connection::ticket;
use crate::server::Server;

const DOCS: &str = include_str!("../../docs.md");

/// The words in backquotes in a row of the documentation.
fn words_of<'a>(row: &str) -> Vec<&'a str> {
    let (_, rest) = DOCS.split_once(&format!("\n| {row} | ")).unwrap();
    let (part, _) = rest.split_once(" |\n").unwrap();
    let quoted = part.split('`').skip(1).step_by(2);
    quoted.flat_map(str::split_whitespace).collect()
}

fn user(server: &Server, rights: &[String]) {
    let mut words = vec!["ACL", "SETUSER", "app", "reset", "on", ">s3cret"];
    words.extend(rights.iter().map(String::as_str));
    assert_eq!(server.cli(&words), "OK", "{rights:?}");
}

async fn open(server: &Server, protocol: Protocol) -> RedisStore {
    let builder = server.builder().protocol(protocol).user("app");
    builder.password("s3cret").connect().await.unwrap()
}

#[tokio::test]
async fn documented_permissions_are_enough() {
    let server = Server::start(&[]).await;
    let keys = ["~app/*", "~lockkit_*", "~redisson_lock_*"].map(str::to_owned);
    let channels = words_of("channels");
    let commands = words_of("always");
    let operators = words_of("for inspect, break and list");
    let mut rights: Vec<String> = keys.into();
    rights.extend(channels.into_iter().map(str::to_owned));
    rights.extend(
        commands
            .iter()
            .map(|word| format!("+{}", word.to_lowercase())),
    );
    assert!(rights.len() > 20, "{rights:?}");
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        user(&server, &rights);
        let clients = [
            LockClient::new(open(&server, protocol).await).unwrap(),
            LockClient::new(open(&server, protocol).await).unwrap(),
        ];
        let locks = clients
            .each_ref()
            .map(|client| client.lock("app/a").unwrap());
        let guard = locks[0].acquire().await.unwrap();
        let waiting = locks[1].clone();
        let waiter =
            tokio::runtime::Handle::current().spawn(async move { waiting.acquire().await });
        while server.cli(&["LLEN", "lockkit_queue:{app/a}"]) != "1" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let text = guard.detach().await.unwrap();
        let guard = clients[0].adopt(&text).await.unwrap();
        let errors = server.cli(&["INFO", "errorstats"]);
        assert!(!errors.contains("LOCKKITPARTLY"), "{errors}");
        guard.release().await.unwrap();
        let guard = timeout(Duration::from_secs(2), waiter).await;
        let guard = guard.expect("nobody told the waiter").unwrap().unwrap();
        // A withdrawn attempt, a renewal, a hold that is looked at.
        let limit = Duration::from_millis(50);
        locks[0].acquire_timeout(limit).await.unwrap_err();
        drop(locks[0].acquire());
        assert!(locks[0].inspect().await.is_err(), "not yet allowed");
        let words: Vec<String> = operators
            .iter()
            .map(|word| format!("+{}", word.to_lowercase()))
            .collect();
        user(&server, &[rights.clone(), words].concat());
        assert!(locks[0].inspect().await.unwrap().is_some());
        assert_eq!(clients[0].list("app/").await.unwrap().len(), 1);
        locks[0].break_lock().await.unwrap().unwrap();
        drop(guard);
        for client in clients {
            client.drain().await;
        }
    }
}

#[tokio::test]
async fn connects_despite_a_forbidden_channel() {
    let server = Server::start(&[]).await;
    let rights = "~* resetchannels &lockkit_client:* +@all".split(' ');
    user(&server, &rights.map(str::to_owned).collect::<Vec<_>>());
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let store = open(&server, protocol).await;
        let other = server.open().await;
        let (holder, waiter) = (ticket("a"), ticket("a"));
        let granted = |answer| matches!(answer, Attempt::Granted(_));
        assert!(granted(other.attempt(&holder).await.unwrap()));
        assert!(!granted(store.attempt(&waiter).await.unwrap()));
        let mut watch = store.watch(&waiter).await.unwrap();
        // Long enough for the channel of the lock to be refused.
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.cli(&["CLIENT", "KILL", "USER", "app"]);
        let wake = timeout(Duration::from_secs(5), watch.changed()).await;
        assert_eq!(wake.expect("it never came back").unwrap(), Wake::Retry);
        other.release(&holder).await.unwrap();
        let wake = timeout(Duration::from_secs(5), watch.changed()).await;
        let wake = wake.expect("nobody told the waiter").unwrap();
        assert!(matches!(wake, Wake::Granted(_)), "{wake:?}");
        store.release(&waiter).await.unwrap();
    }
}

#[tokio::test]
async fn one_forbidden_channel_costs_few_requests() {
    const CHANNELS: usize = 500;
    let server = Server::start(&[]).await;
    let rights = "~* resetchannels &lockkit_client:* &redisson_lock__channel:{ok/* +@all";
    user(
        &server,
        &rights.split(' ').map(str::to_owned).collect::<Vec<_>>(),
    );
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let store = open(&server, protocol).await;
        let mut watches = Vec::new();
        for number in 0..=CHANNELS {
            let name = if number == 77 {
                "no/77".into()
            } else {
                format!("ok/{number}")
            };
            let ticket = ticket(&name);
            store.attempt(&ticket).await.unwrap();
            watches.push(store.watch(&ticket).await.unwrap());
        }
        let heard = async || {
            let all = || server.cli(&["PUBSUB", "CHANNELS", "redisson_lock__channel:*"]);
            while all().lines().count() < CHANNELS {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(5), heard()).await.unwrap();
        let before = server.calls("subscribe");
        server.cli(&["CLIENT", "KILL", "USER", "app"]);
        while server.calls("subscribe") == before {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        timeout(Duration::from_secs(5), heard()).await.unwrap();
        let asked = server.calls("subscribe") - before;
        assert!(asked <= 40, "{asked} requests");
        drop(watches);
        server.cli(&["FLUSHALL"]);
    }
}
