//! Scripts that are run under a lock in one step.

use std::time::Duration;

use futures_util::FutureExt as _;
use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, Lock, LockClient, Outcome};
use lockkit_redis::{Command, Fenced, Script, Section};
use tokio::runtime::Handle;

use crate::server::Server;

const NAME: &str = "stock";
const LEFT: &str = "left";

/// Takes so many, if so many are left.
fn buy() -> Script {
    Script::new(
        "local left = tonumber(redis.call('GET', KEYS[1]) or '0') - tonumber(ARGV[1])
         if left < 0 then return -1 end
         redis.call('SET', KEYS[1], left)
         return left",
    )
}

async fn lock(server: &Server) -> Lock {
    let client = LockClient::new(server.open().await).unwrap();
    client.lock(NAME).unwrap()
}

#[tokio::test]
async fn free_lock_costs_one_request() {
    let server = Server::start(&[]).await;
    let lock = lock(&server).await;
    let (section, buy) = (Section::of(&lock), buy());
    let guard = lock.acquire().await.unwrap();
    let first = guard.token();
    guard.release().await.unwrap();
    server.cli(&["SET", LEFT, "10"]);
    section.apply(&buy, &[LEFT], &[b"1"]).await.unwrap();
    let before = server.calls("evalsha");
    for left in [8, 7, 6] {
        let reply = section.apply(&buy, &[LEFT], &[b"1"]).await.unwrap();
        assert_eq!(reply.as_int(), Some(left));
    }
    assert_eq!(server.calls("evalsha") - before, 3);
    assert_eq!(server.cli(&["EXISTS", NAME]), "0");
    let token: u64 = server
        .cli(&["GET", "redisson_lock_token:{stock}"])
        .parse()
        .unwrap();
    assert!(token >= first.get() + 4, "{token} {first}");
}

#[tokio::test]
async fn held_lock_is_waited_for() {
    let server = Server::start(&[]).await;
    let [holder, other] = [lock(&server).await, lock(&server).await];
    let (entered, _) = Section::of(&holder).enter().await.unwrap();
    let applying = Handle::current().spawn(async move {
        let section = Section::of(&other);
        section.apply(&buy(), &[LEFT], &[b"1"]).await
    });
    while holder.inspect().await.unwrap().and_then(|it| it.waiters) != Some(1) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let set = Command::new("SET").arg(LEFT).arg("7");
    entered.commit(&[set]).await.unwrap();
    assert_eq!(applying.await.unwrap().unwrap().as_int(), Some(6));
    assert_eq!(server.cli(&["EXISTS", NAME]), "0");
}

/// The lock is free for a moment in which others wait: they come first.
#[tokio::test]
async fn waiters_are_not_passed() {
    let server = Server::start(&[]).await;
    let [holder, waiting, applying] = [
        lock(&server).await,
        lock(&server).await,
        lock(&server).await,
    ];
    let guard = holder.acquire().await.unwrap();
    let waiter = Handle::current().spawn(async move { waiting.acquire().await });
    while holder.inspect().await.unwrap().and_then(|it| it.waiters) != Some(1) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // As if its lease had ended.
    server.cli(&["DEL", NAME]);
    let applying = Handle::current().spawn(async move {
        Section::of(&applying)
            .apply(&buy(), &[LEFT], &[b"-3"])
            .await
    });
    let next = waiter.await.unwrap().unwrap();
    assert_eq!(server.cli(&["EXISTS", LEFT]), "0");
    next.release().await.unwrap();
    assert_eq!(applying.await.unwrap().unwrap().as_int(), Some(3));
    drop(guard);
}

#[tokio::test]
async fn failed_script_frees_the_lock() {
    let server = Server::start(&[]).await;
    let lock = lock(&server).await;
    let script = Script::new("redis.call('SET', KEYS[1], 'x') return redis.call('INCR', KEYS[1])");
    for held in [false, true] {
        let client = LockClient::new(server.open().await).unwrap();
        let owned = client.lock(NAME).unwrap().with_owner(&client.owner());
        let owned = owned.unwrap();
        let guard = match held {
            true => Some(owned.acquire().await.unwrap()),
            false => None,
        };
        let failed = Section::of(&owned).apply(&script, &[LEFT], &[]).await;
        let Err(Error::Backend(error)) = failed else {
            panic!("{failed:?}")
        };
        // What it wrote before stays.
        assert_eq!(error.outcome(), Outcome::Indeterminate);
        assert_eq!(server.cli(&["GET", LEFT]), "x");
        drop(guard);
        client.drain().await;
        assert_eq!(server.cli(&["EXISTS", NAME]), "0");
    }
    drop(lock);
}

/// The client's shutdown refuses it as it refuses an acquire.
#[tokio::test]
async fn closed_client_applies_nothing() {
    let server = Server::start(&[]).await;
    let client = LockClient::new(server.open().await).unwrap();
    let lock = client.lock(NAME).unwrap();
    client.shutdown(Duration::ZERO).await.unwrap();
    let refused = Section::of(&lock).apply(&buy(), &[LEFT], &[b"-1"]).await;
    assert!(matches!(refused, Err(Error::Shutdown)), "{refused:?}");
    assert_eq!(server.cli(&["EXISTS", LEFT]), "0");
}

#[tokio::test]
async fn no_runtime_is_an_error_and_not_a_panic() {
    let server = Server::start(&[]).await;
    let client = LockClient::new(server.open().await).unwrap();
    let lock = client.lock(NAME).unwrap();
    let guard = lock.acquire().await.unwrap();
    let polled = std::thread::spawn(move || {
        let (section, buy) = (Section::of(&lock), buy());
        let refused = section.apply(&buy, &[LEFT], &[b"-1"]).now_or_never();
        assert!(
            matches!(refused, Some(Err(Error::NoRuntime))),
            "{refused:?}"
        );
        // It needs none, as the connection has its own.
        let fenced = Fenced::by(&client, &guard).unwrap();
        let sent = fenced.script(&buy, &[LEFT], &[b"-2"]).now_or_never();
        assert!(sent.is_none(), "{sent:?}");
        guard
    });
    polled.join().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn refuses_what_it_cannot_do() {
    let server = Server::start(&[]).await;
    let client = LockClient::new(server.open().await).unwrap();
    let shared = client.semaphore("permits", 2).unwrap();
    let elsewhere = LockClient::new(MemoryStore::new()).unwrap();
    let elsewhere = elsewhere.lock(NAME).unwrap();
    for (lock, unsupported) in [(shared, false), (elsewhere, true)] {
        let refused = Section::of(&lock).apply(&buy(), &[LEFT], &[b"-1"]).await;
        let fits = match refused {
            Err(Error::Unsupported { .. }) => unsupported,
            Err(Error::InvalidOption { .. }) => !unsupported,
            _ => false,
        };
        assert!(fits, "{refused:?}");
    }
    // A key of another program under this name.
    server.cli(&["RPUSH", NAME, "a list"]);
    let lock = client.lock(NAME).unwrap();
    let refused = Section::of(&lock).apply(&buy(), &[LEFT], &[b"-1"]).await;
    assert!(matches!(refused, Err(Error::Backend(_))), "{refused:?}");
    assert_eq!(server.cli(&["EXISTS", LEFT]), "0");
}

#[tokio::test]
async fn script_that_returns_an_error_of_the_server_is_not_run_again() {
    let server = Server::start(&[]).await;
    let section = Section::of(&lock(&server).await);
    for (text, runs) in [("BUSY no", "1"), ("NOSCRIPT no", "2"), ("TRYAGAIN no", "3")] {
        let script = format!("redis.call('INCR', KEYS[1]) return redis.error_reply('{text}')");
        let answer = section.apply(&Script::new(&script), &[LEFT], &[]).await;
        let Err(Error::Backend(error)) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(error.outcome(), Outcome::Indeterminate, "{text}");
        assert_eq!(server.cli(&["GET", LEFT]), runs, "{text}");
    }
}

#[tokio::test]
async fn error_within_a_reply_or_a_text_does_not_run_the_script_again() {
    let server = Server::start(&[]).await;
    let section = Section::of(&lock(&server).await);
    let mut runs = 0;
    for text in ["BUSY no", "NOSCRIPT no", "LOCKKITHELD no", "TRYAGAIN no"] {
        let list = format!("return {{redis.error_reply('{text}')}}");
        let script = Script::new(&format!("redis.call('INCR', KEYS[1]) {list}"));
        let reply = section.apply(&script, &[LEFT], &[]).await.unwrap();
        assert_eq!(reply.as_list()[0].as_str(), Some(text));
        runs += 1;
        assert_eq!(server.cli(&["GET", LEFT]), runs.to_string(), "{text}");
    }
    let script = Script::new("redis.call('INCR', KEYS[1]) error('queue -BUSY now')");
    let answer = section.apply(&script, &[LEFT], &[]).await;
    let Err(Error::Backend(error)) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(error.outcome(), Outcome::Indeterminate);
    assert_eq!(server.cli(&["GET", LEFT]), (runs + 1).to_string());
}
