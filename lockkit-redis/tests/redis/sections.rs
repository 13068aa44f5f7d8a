//! Sections: what is read with a grant, and written with a release.

use std::time::Duration;

use lockkit_core::memory::MemoryStore;
use lockkit_core::{Error, Lock, LockClient, Outcome};
use lockkit_redis::{Command, Entered, FencedError, RedlockStore, Reply, Section};

use crate::connection::why;
use crate::server::Server;

const NAME: &str = "{cart:7}";

async fn lock(server: &Server) -> Lock {
    let client = LockClient::new(server.open().await).unwrap();
    client.lock(NAME).unwrap()
}

async fn lock_of_owner(server: &Server) -> Lock {
    let client = LockClient::new(server.open().await).unwrap();
    let lock = client.lock(NAME).unwrap();
    lock.with_owner(&client.owner()).unwrap()
}

fn get() -> Command {
    Command::new("GET").arg("{cart:7}:state")
}

fn set(state: &str) -> Command {
    Command::new("SET").arg("{cart:7}:state").arg(state)
}

async fn enter(lock: &Lock) -> Entered {
    Section::of(lock).read(get()).enter().await.unwrap().0
}

fn outcome<T: std::fmt::Debug>(result: Result<T, FencedError>) -> Outcome {
    match result {
        Err(FencedError::Backend(error)) => error.outcome(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn two_requests_read_and_write() {
    let server = Server::start(&[]).await;
    let client = LockClient::builder(server.open().await).prefix("app:");
    let lock = client.build().unwrap().lock(NAME).unwrap();
    let section = Section::of(&lock).read(get());
    let section = section.read(Command::new("MGET").arg("{cart:7}:state").arg("none"));
    for (turn, state) in ["new", "paid", "sent"].into_iter().enumerate() {
        let (entered, replies) = section.enter().await.unwrap();
        let before = ["new", "paid"].get(turn.wrapping_sub(1));
        let seen = replies[0].as_str();
        assert_eq!(seen, before.copied());
        assert_eq!(replies[1].as_list()[0].as_str(), seen);
        assert_eq!(replies[1].as_list()[1], Reply::Nil);
        assert_eq!(server.cli(&["EXISTS", "app:{cart:7}"]), "1");
        entered.check().unwrap();
        let written = entered.commit(&[set(state), get()]).await.unwrap();
        assert_eq!(written[0].as_str(), Some("OK"));
        assert_eq!(written[1].as_str(), Some(state));
        assert_eq!(server.cli(&["EXISTS", "app:{cart:7}"]), "0");
    }
    // Each script was sent once with its text.
    let scripts = server.calls("evalsha") + server.calls("eval");
    assert_eq!(scripts, 2 * 3 + 2);
    let (entered, replies) = Section::of(&lock).enter().await.unwrap();
    assert!(replies.is_empty());
    assert!(section.try_enter().await.unwrap().is_none());
    let late = section.enter_timeout(Duration::from_millis(20)).await;
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    assert!(entered.commit(&[]).await.unwrap().is_empty());
    let (entered, replies) = section.try_enter().await.unwrap().unwrap();
    assert_eq!(replies[0].as_str(), Some("sent"));
    entered.into_guard().release().await.unwrap();
}

#[tokio::test]
async fn ended_hold_writes_nothing() {
    let server = Server::start(&[]).await;
    let lock = lock(&server).await;
    let entered = enter(&lock).await;
    server.cli(&["DEL", NAME]);
    let refused = entered.commit(&[set("paid")]).await;
    assert!(matches!(refused, Err(FencedError::Fenced)), "{refused:?}");
    // The lock of another client stays as it is.
    let entered = enter(&lock).await;
    server.cli(&["DEL", NAME]);
    server.cli(&["HSET", NAME, "other", "9 x"]);
    let refused = entered.commit(&[set("paid")]).await;
    assert!(matches!(refused, Err(FencedError::Fenced)), "{refused:?}");
    assert_eq!(server.cli(&["HGET", NAME, "other"]), "9 x");
    server.cli(&["DEL", NAME]);
    // A hold of the same ticket with another token is not the one that was read under.
    let entered = enter(&lock).await;
    server.cli(&["HSET", NAME, &entered.holder().to_string(), "9 x"]);
    let refused = entered.commit(&[set("paid")]).await;
    assert!(matches!(refused, Err(FencedError::Fenced)), "{refused:?}");
    assert_eq!(server.cli(&["EXISTS", NAME, "{cart:7}:state"]), "0");
}

#[tokio::test]
async fn what_is_dropped_writes_nothing() {
    let server = Server::start(&[]).await;
    let lock = lock(&server).await;
    let entered = enter(&lock).await;
    drop(entered.commit(&[set("paid")]));
    let entered = enter(&lock).await;
    drop(entered);
    drop(enter(&lock).await);
    assert_eq!(server.cli(&["EXISTS", "{cart:7}:state"]), "0");
}

#[tokio::test]
async fn failed_read_frees_the_lock_at_once() {
    let server = Server::start(&[]).await;
    let lock = lock(&server).await;
    server.cli(&["SET", "{cart:7}:state", "new"]);
    let wrong = Command::new("HGETALL").arg("{cart:7}:state");
    let section = Section::of(&lock).read(get()).read(wrong);
    for _ in 0..2 {
        let failed = section.enter().await;
        let Err(Error::Backend(error)) = failed else {
            panic!("{failed:?}")
        };
        assert_eq!(error.outcome(), Outcome::Rejected);
        let why = why(&error);
        assert!(why.contains("WRONGTYPE"), "{why}");
        assert_eq!(server.cli(&["EXISTS", NAME]), "0");
    }
    assert!(section.try_enter().await.is_err());
    assert_eq!(server.cli(&["EXISTS", NAME]), "0");
}

#[tokio::test]
async fn failed_write_ends_the_section() {
    let server = Server::start(&[]).await;
    let lock = lock(&server).await;
    server.cli(&["RPUSH", "{cart:7}:list", "x"]);
    let wrong = Command::new("INCR").arg("{cart:7}:list");
    let calls = |command: &str| server.calls(command);
    let (sets, before) = (calls("set"), calls("evalsha"));
    let failed = enter(&lock).await;
    let failed = failed.commit(&[set("paid"), wrong, set("sent")]).await;
    let text = format!("{failed:?}");
    assert_eq!(outcome(failed), Outcome::Indeterminate);
    assert!(text.contains("WRONGTYPE"), "{text}");
    assert_eq!(server.cli(&["GET", "{cart:7}:state"]), "paid");
    assert_eq!(server.cli(&["EXISTS", NAME]), "0");
    // It was not tried again. One more is the token.
    assert_eq!((calls("set") - sets, calls("evalsha") - before), (2, 2));
    // A user who may not run it at all has changed nothing.
    let entered = enter(&lock).await;
    server.cli(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
    let answer = entered.commit(&[set("lost")]).await;
    assert_eq!(outcome(answer), Outcome::Rejected);
    server.cli(&["ACL", "SETUSER", "default", "+@all"]);
    assert_eq!(server.cli(&["GET", "{cart:7}:state"]), "paid");
}

#[tokio::test]
async fn refuses_what_it_cannot_do() {
    let server = Server::start(&[]).await;
    let client = LockClient::new(server.open().await).unwrap();
    let lock = client.lock(NAME).unwrap();
    let kept = lock.clone().with_min_hold(Duration::from_secs(1));
    let shared = client.semaphore("permits", 2).unwrap();
    for lock in [kept, shared] {
        let refused = Section::of(&lock).enter().await.err();
        assert!(
            matches!(refused, Some(Error::InvalidOption { .. })),
            "{refused:?}"
        );
    }
    let nodes = [Server::start(&[]).await, Server::start(&[]).await];
    let nodes = [&server, &nodes[0], &nodes[1]].map(|node| ("127.0.0.1", node.port));
    let redlock = RedlockStore::builder(nodes).connect().await.unwrap();
    for client in [
        LockClient::new(MemoryStore::new()),
        LockClient::new(redlock),
    ] {
        let lock = client.unwrap().lock(NAME).unwrap();
        let refused = Section::of(&lock).enter().await.err();
        assert!(
            matches!(refused, Some(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
    // The hold of two guards is not ended by one of them.
    let entered = enter(&lock).await;
    let other = entered.reenter().unwrap();
    let refused = entered.commit(&[set("paid")]).await;
    assert_eq!(outcome(refused), Outcome::Rejected);
    other.check().unwrap();
    assert_eq!(other.guard_count(), 1);
    other.release().await.unwrap();
    assert_eq!(server.cli(&["EXISTS", NAME, "{cart:7}:state"]), "0");
}

#[tokio::test]
async fn owner_reads_again() {
    let server = Server::start(&[]).await;
    let lock = lock_of_owner(&server).await;
    let section = Section::of(&lock).read(get());
    let (outer, _) = section.enter().await.unwrap();
    server.cli(&["SET", "{cart:7}:state", "new"]);
    let (inner, replies) = section.enter().await.unwrap();
    assert_eq!(replies[0].as_str(), Some("new"));
    assert_eq!(inner.token(), outer.token());
    drop(inner);
    outer.commit(&[set("paid")]).await.unwrap();
    let (again, replies) = section.enter().await.unwrap();
    assert_eq!(replies[0].as_str(), Some("paid"));
    server.cli(&["DEL", NAME]);
    // A hold that has ended reads nothing.
    let lost = section.enter().await.err();
    assert!(matches!(lost, Some(Error::Lost { .. })), "{lost:?}");
    drop(again);
}

/// It is what was there before the writes of the hold.
#[tokio::test]
async fn reads_of_a_message_behind_its_reply_are_left_out() {
    let server = Server::start(&[]).await;
    let lock = lock_of_owner(&server).await;
    let section = Section::of(&lock).read(get());
    let (outer, _) = section.enter().await.unwrap();
    server.cli(&["SET", "{cart:7}:state", "new"]);
    let channel = server.cli(&["PUBSUB", "CHANNELS", "lockkit_client:*"]);
    let grant = format!("{} {} 15000 1 {NAME}", outer.holder(), outer.token());
    // A word of the command cannot have a NUL byte.
    let publish = r"return redis.call('PUBLISH', ARGV[1], ARGV[2] .. '\0*1\r\n$3\r\nold\r\n')";
    let heard = server.cli(&["EVAL", publish, "0", &channel, &grant]);
    assert_eq!(heard, "1");
    // The message comes on the connection of this reply, before it.
    lock.inspect().await.unwrap();
    let (inner, replies) = section.enter().await.unwrap();
    assert_eq!(replies[0].as_str(), Some("new"));
    assert_eq!(inner.token(), outer.token());
}
