//! The steps of the contract against a real server.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::connection::why;
use crate::server::Server;
use lockkit_core::contract::{
    Attempt, DistributedLock, Grant, Mode, Release, Renewal, Ticket, Wake,
};
use lockkit_core::{ClientId, HolderId, LockClient, LockName, Outcome, Queueing};
use lockkit_redis::{Command, Fenced, FencedError, RedisStore};

const TTL: Duration = Duration::from_secs(30);

fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

fn ticket(lock: &str) -> Ticket {
    Ticket::new(name(lock), HolderId::new(ClientId::random(), 1), TTL)
}

async fn granted(store: &RedisStore, ticket: &Ticket) -> Grant {
    match store.attempt(ticket).await.unwrap() {
        Attempt::Granted(grant) => grant,
        held => panic!("{held:?}"),
    }
}

/// Attempts a lock that is held.
async fn queued(store: &RedisStore, ticket: &Ticket) {
    let answer = store.attempt(ticket).await.unwrap();
    assert!(matches!(answer, Attempt::Held { .. }), "{answer:?}");
}

async fn wake(store: &RedisStore, ticket: &Ticket) -> Wake {
    let mut watch = store.watch(ticket).await.unwrap();
    loop {
        let wake = tokio::time::timeout(Duration::from_secs(5), watch.changed()).await;
        match wake.expect("nobody woke the waiter").unwrap() {
            Wake::Retry => {}
            wake => return wake,
        }
    }
}

#[tokio::test]
async fn acquire_and_release_cost_one_command_each() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    // The first ever loads the scripts.
    let first = ticket("a");
    granted(&store, &first).await;
    store.release(&first).await.unwrap();
    let (before, whole) = (server.calls("evalsha"), server.calls("eval"));
    let ticket = ticket("a");
    let grant = granted(&store, &ticket).await;
    let holder = ticket.holder.to_string();
    let field = format!("{} x", grant.token);
    assert_eq!(server.cli(&["HGET", "a", &holder]), field);
    assert_eq!(server.cli(&["HLEN", "a"]), "1");
    assert_eq!(store.release(&ticket).await.unwrap(), Release::Released);
    assert_eq!(server.calls("evalsha") - before, 2);
    assert_eq!(server.calls("eval"), whole);
    assert_eq!(server.calls("script|load"), 0);
    assert_eq!(server.keys(), ["redisson_lock_token:{a}"]);
    assert_eq!(store.counts(), lockkit_redis::Counts::default());
}

#[tokio::test]
async fn grants_waiters_in_order() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let (holder, second, third) = (ticket("a"), ticket("a"), ticket("a"));
    let first = granted(&store, &holder).await;
    queued(&store, &second).await;
    queued(&store, &third).await;
    queued(&store, &second).await;
    queued(&store, &ticket("a").with_enqueue(false)).await;
    let order = [&second, &third].map(|ticket| ticket.holder.to_string());
    let queue = server.cli(&["LRANGE", "lockkit_queue:{a}", "0", "-1"]);
    assert_eq!(queue, order.join("\n"), "a place is kept");
    store.release(&holder).await.unwrap();
    let Wake::Granted(grant) = wake(&store, &second).await else {
        panic!()
    };
    assert!(grant.token > first.token);
    assert_eq!(
        grant.ttl,
        Duration::from_secs(15),
        "a window and not the whole lease"
    );
    let renewed = store.renew(&[second.clone(), third.clone()]).await;
    assert_eq!(*renewed[0].as_ref().unwrap(), Renewal::renewed(second.ttl));
    assert_eq!(*renewed[1].as_ref().unwrap(), Renewal::NotHeld);
    let left: u64 = server.cli(&["PTTL", "a"]).parse().unwrap();
    assert!(left > 29_000, "{left}");
    assert_eq!(
        granted(&store, &second).await.token,
        grant.token,
        "a repeat"
    );
    store.release(&second).await.unwrap();
    let Wake::Granted(_) = wake(&store, &third).await else {
        panic!()
    };
    store.release(&third).await.unwrap();
    assert_eq!(server.keys(), ["redisson_lock_token:{a}"]);
}

#[tokio::test]
async fn repeated_attempt_keeps_token_and_place() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let holder = ticket("a");
    let first = granted(&store, &holder).await;
    assert_eq!(granted(&store, &holder).await, first);
    // The ticket that leaves the head passes the lock on.
    let (head, tail) = (ticket("a"), ticket("a"));
    queued(&store, &head).await;
    queued(&store, &tail).await;
    server.cli(&["DEL", "a"]);
    assert_eq!(store.release(&head).await.unwrap(), Release::NotHeld);
    let Wake::Granted(_) = wake(&store, &tail).await else {
        panic!()
    };
}

#[tokio::test]
async fn newcomer_passes_free_lock_to_first_waiter() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let (holder, first) = (ticket("a"), ticket("a"));
    granted(&store, &holder).await;
    queued(&store, &first).await;
    server.cli(&["DEL", "a"]);
    queued(&store, &ticket("a").with_enqueue(false)).await;
    let Wake::Granted(_) = wake(&store, &first).await else {
        panic!()
    };
}

/// The lock of a reader is deleted by hand, and its share stays. A ticket that shares the lock later is alone.
#[tokio::test]
async fn shares_without_their_lock_count_for_nobody() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    for end in ["release", "newcomer", "break", "adopt"] {
        let reader = || ticket("a").with_mode(Mode::Read);
        let (former, exclusive, next) = (reader(), ticket("a"), reader());
        granted(&store, &former).await;
        server.cli(&["DEL", "a"]);
        granted(&store, &exclusive).await;
        if end == "adopt" {
            let adopted = store.adopt(exclusive.holder, &next).await.unwrap();
            assert!(matches!(adopted, Attempt::Granted(_)), "{adopted:?}");
        } else {
            queued(&store, &next).await;
        }
        match end {
            "release" => drop(store.release(&exclusive).await.unwrap()),
            "newcomer" => {
                server.cli(&["DEL", "a"]);
                queued(&store, &ticket("a").with_enqueue(false)).await;
            }
            "break" => {
                server.cli(&["DEL", "a"]);
                assert!(store.break_lock(&name("a")).await.unwrap().is_none());
            }
            _ => {}
        }
        let shares = server.cli(&["ZRANGE", "lockkit_share:{a}", "0", "-1"]);
        assert_eq!(shares, next.holder.to_string(), "{end}");
        assert_eq!(store.release(&next).await.unwrap(), Release::Released);
        for gone in [former, exclusive] {
            store.release(&gone).await.unwrap();
        }
        assert_eq!(server.cli(&["EXISTS", "a", "lockkit_share:{a}"]), "0");
    }
}

/// Its field stays in the lock while another has a share.
#[tokio::test]
async fn ended_share_does_no_work() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let reader = || ticket("a").with_mode(Mode::Read);
    let (short, long) = (reader().with_ttl(Duration::from_secs(1)), reader());
    let first = granted(&store, &short).await.token;
    let second = granted(&store, &long).await.token;
    let incr = [Command::new("INCR").arg("work")];
    let fenced = Fenced::new(&store, short, first);
    fenced.commands(&incr).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(server.cli(&["HLEN", "a"]), "3");
    let refused = fenced.commands(&incr).await;
    assert!(matches!(refused, Err(FencedError::Fenced)), "{refused:?}");
    let fenced = Fenced::new(&store, long, second);
    let done = fenced.commands(&incr).await.unwrap();
    assert_eq!(done[0].as_int(), Some(2));
}

#[tokio::test]
async fn refuses_late_attempts_of_a_released_ticket() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let ticket = ticket("a").with_ttl(Duration::from_secs(2));
    // Unknown here: as far as the store can tell, an attempt of it is still on its way.
    assert_eq!(store.release(&ticket).await.unwrap(), Release::NotHeld);
    let refused = store.attempt(&ticket).await.unwrap_err();
    assert_eq!(refused.outcome(), Outcome::Rejected);
    let gone = server.keys();
    assert_eq!(gone.len(), 1, "{gone:?}");
    let left: i64 = server.cli(&["PTTL", &gone[0]]).parse().unwrap();
    assert!((1..=2_000).contains(&left), "{left}");
}

#[tokio::test]
async fn tokens_grow_after_any_loss() {
    let mut server = Server::start(&["--enable-debug-command", "yes"]).await;
    let store = server.open().await;
    let mut last = 0;
    for round in 0..6 {
        let ticket = ticket("a");
        let token = granted(&store, &ticket).await.token.get();
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        match round {
            0 => drop(store.release(&ticket).await.unwrap()),
            1 => drop(store.break_lock(&name("a")).await.unwrap().unwrap()),
            2 => drop(server.cli(&["FLUSHALL"])),
            3 => {
                server.restart().await;
                // The connection of before is gone, which a request may have to find out.
                while store.inspect(&name("a")).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
            // Ahead of the clock, as after years of reentries of RFencedLock.
            _ => {
                last += 1_000_000_000_000;
                server.cli(&["SET", "redisson_lock_token:{a}", &last.to_string()]);
                server.cli(&["DEL", "a"]);
            }
        }
    }
    assert_eq!(
        server.cli(&["TTL", "redisson_lock_token:{a}"]),
        "-1",
        "not ours: it stays for ever"
    );
}

#[tokio::test]
async fn late_request_never_shortens_a_lease() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let short = ticket("a");
    let long = short.clone().with_ttl(TTL * 2);
    granted(&store, &short).await;
    let renewed = |ticket: &Ticket| Renewal::renewed(ticket.ttl);
    let answer = store.renew(std::slice::from_ref(&long)).await;
    assert_eq!(*answer[0].as_ref().unwrap(), renewed(&long));
    let left = || -> i64 { server.cli(&["PTTL", "a"]).parse().unwrap() };
    let answer = store.renew(std::slice::from_ref(&short)).await;
    assert_eq!(*answer[0].as_ref().unwrap(), renewed(&short));
    assert!(left() > 55_000, "renewed to {}", left());
    granted(&store, &short).await;
    assert!(left() > 55_000, "attempted again: {}", left());
    // A lease that somebody has made endless ends again.
    server.cli(&["PERSIST", "a"]);
    store.renew(std::slice::from_ref(&short)).await;
    assert!((1..=30_000).contains(&left()), "{}", left());
    server.cli(&["PERSIST", "a"]);
    granted(&store, &long).await;
    assert!((30_001..=60_000).contains(&left()), "{}", left());
}

#[tokio::test]
async fn attempt_after_pushed_grant_extends_its_lease() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let (holder, waiter) = (ticket("a"), ticket("a"));
    granted(&store, &holder).await;
    queued(&store, &waiter).await;
    store.release(&holder).await.unwrap();
    let left = || -> i64 { server.cli(&["PTTL", "a"]).parse().unwrap() };
    assert!((1..=15_000).contains(&left()), "{}", left());
    granted(&store, &waiter).await;
    assert!(left() > 29_000, "{}", left());
}

#[tokio::test]
async fn queue_lasts_as_long_as_its_longest_place() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let patient = server.builder().recheck(Duration::from_secs(100));
    let patient = patient.connect().await.unwrap();
    let (holder, first) = (ticket("a"), ticket("a"));
    let second = ticket("a").with_ttl(Duration::from_secs(300));
    granted(&store, &holder).await;
    queued(&store, &first).await;
    queued(&patient, &second).await;
    queued(&store, &first).await;
    for key in ["lockkit_queue:{a}", "lockkit_wait:{a}"] {
        let left: i64 = server.cli(&["PTTL", key]).parse().unwrap();
        assert!(left > 300_000, "{key} ends in {left} ms");
    }
}

#[tokio::test]
async fn waiters_join_again_after_queue_is_deleted() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    for lost in ["lockkit_queue:{a}", "lockkit_wait:{a}"] {
        let (holder, one, other) = (ticket("a"), ticket("a"), ticket("a"));
        granted(&store, &holder).await;
        queued(&store, &one).await;
        queued(&store, &other).await;
        server.cli(&["DEL", lost]);
        queued(&store, &other).await;
        queued(&store, &one).await;
        let newcomer = ticket("a");
        queued(&store, &newcomer).await;
        let order = [&other, &one, &newcomer].map(|ticket| ticket.holder.to_string());
        let queue = server.cli(&["LRANGE", "lockkit_queue:{a}", "0", "-1"]);
        assert_eq!(queue, order.join("\n"), "{lost}");
        store.release(&holder).await.unwrap();
        for ticket in [other, one, newcomer] {
            store.release(&ticket).await.unwrap();
        }
        assert_eq!(server.keys(), ["redisson_lock_token:{a}"], "{lost}");
    }
}

#[tokio::test]
async fn releases_despite_a_foreign_key_as_queue() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    for breaks in [false, true] {
        let holder = ticket("a");
        granted(&store, &holder).await;
        server.cli(&["SET", "lockkit_queue:{a}", "x"]);
        if breaks {
            assert!(store.break_lock(&name("a")).await.unwrap().is_some());
        } else {
            assert_eq!(store.release(&holder).await.unwrap(), Release::Released);
        }
        assert_eq!(server.cli(&["EXISTS", "a"]), "0");
        server.cli(&["DEL", "lockkit_queue:{a}"]);
    }
}

#[tokio::test]
async fn refuses_a_hash_of_an_application() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    server.cli(&["HSET", "user:42", "name", "x"]);
    for (enqueue, mode) in [false, true]
        .into_iter()
        .flat_map(|enqueue| [Mode::Exclusive, Mode::Read].map(|mode| (enqueue, mode)))
    {
        let ticket = ticket("user:42").with_enqueue(enqueue).with_mode(mode);
        let refused = store.attempt(&ticket).await.unwrap_err();
        assert_eq!(refused.outcome(), Outcome::Rejected);
        let why = why(&refused);
        assert!(why.contains("`user:42`") && why.contains("hash"), "{why}");
    }
    assert_eq!(server.keys(), ["user:42"]);
    // What has the fields of a lock is one, and who has it may still end it.
    let other = format!("{}:52", ClientId::random());
    server.cli(&["HSET", "java", &other, "1"]);
    queued(&store, &ticket("java")).await;
}

#[tokio::test]
async fn renews_in_chunks_and_after_script_flush() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let tickets: Vec<Ticket> = (0..1201).map(|n| ticket(&format!("lock-{n}"))).collect();
    for ticket in &tickets {
        granted(&store, ticket).await;
    }
    store.renew(&tickets[..1]).await;
    let before = server.calls("evalsha");
    let answers = store.renew(&tickets).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(server.calls("evalsha") - before, 3);
    server.cli(&["SCRIPT", "FLUSH"]);
    server.cli(&["DEL", "lock-700"]);
    let answers = store.renew(&tickets).await;
    let lost: Vec<usize> = (0..tickets.len())
        .filter(|&n| *answers[n].as_ref().unwrap() == Renewal::NotHeld)
        .collect();
    assert_eq!(lost, [700]);
}

#[tokio::test]
async fn leaves_foreign_keys_alone() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    server.cli(&["SET", "string", "x", "PX", "20000"]);
    let Attempt::Held { retry_after, .. } = store.attempt(&ticket("string")).await.unwrap() else {
        panic!()
    };
    assert!(retry_after.unwrap() <= Duration::from_secs(20));
    server.cli(&[
        "HSET",
        "rw",
        "mode",
        "read",
        &format!("{}:1", ClientId::random()),
        "1",
    ]);
    server.cli(&["PEXPIRE", "rw", "20000"]);
    queued(&store, &ticket("rw")).await;
    server.cli(&["RPUSH", "list", "x"]);
    let refused = store.attempt(&ticket("list")).await.unwrap_err();
    assert_eq!(refused.outcome(), Outcome::Rejected);
    for lock in ["string", "rw", "list"] {
        let refused = store.break_lock(&name(lock)).await.unwrap_err();
        assert_eq!(refused.outcome(), Outcome::Rejected, "{lock}");
        assert_eq!(
            store.release(&ticket(lock)).await.unwrap(),
            Release::NotHeld
        );
        assert_eq!(server.cli(&["EXISTS", lock]), "1");
    }
    assert!(store.inspect(&name("string")).await.unwrap().is_some());
    // A lock of Redisson is a lock.
    let redisson = format!("{}:52", ClientId::random());
    server.cli(&["HSET", "java", &redisson, "2"]);
    let broken = store.break_lock(&name("java")).await.unwrap().unwrap();
    assert!(broken.holder_ids().eq([redisson]), "{broken:?}");
}

#[tokio::test]
async fn operators_see_only_locks() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let (one, odd, reserved) = (ticket("a/1"), ticket("a/{x}*"), ticket("lockkit_x"));
    let token = granted(&store, &one).await.token;
    granted(&store, &odd).await;
    granted(&store, &reserved).await;
    queued(&store, &ticket("a/1")).await;
    server.cli(&["SET", "a/string", "x"]);
    server.cli(&["HSET", "a/hash", "field", "x"]);
    let state = store.inspect(&name("a/1")).await.unwrap().unwrap();
    assert!(state.holder_ids().eq([one.holder.to_string()]));
    assert_eq!(state.token, Some(token));
    assert_eq!(state.waiters, Some(1));
    assert!(state.remaining.unwrap() <= TTL);
    assert_eq!(store.inspect(&name("free")).await.unwrap(), None);
    let names = async |prefix: &str| -> Vec<String> {
        let found = store.list(prefix).await.unwrap();
        found
            .iter()
            .map(|state| state.name.as_str().to_owned())
            .collect()
    };
    assert_eq!(names("").await, ["a/1", "a/{x}*", "lockkit_x"]);
    let before = server.calls("scan");
    assert_eq!(names("a/").await, ["a/1", "a/{x}*"]);
    // The database is looked through once for locks and once for queues.
    assert_eq!(server.calls("scan") - before, 2);
    assert_eq!(names("a/{x}*").await, ["a/{x}*"]);
    assert_eq!(names("a/?").await, Vec::<String>::new());
    assert_eq!(names("lock").await, ["lockkit_x"]);
    // Only waited for.
    server.cli(&["DEL", "a/1"]);
    assert_eq!(names("a/1").await, ["a/1"]);
}

#[tokio::test]
async fn barging_tickets_queue_only_behind_a_queue() {
    let server = Server::start(&[]).await;
    let fair = server.open().await;
    let barging = server
        .builder()
        .queueing(Queueing::Barging)
        .connect()
        .await
        .unwrap();
    let (holder, first, second) = (ticket("a"), ticket("a"), ticket("a"));
    granted(&barging, &holder).await;
    queued(&barging, &first).await;
    assert_eq!(server.cli(&["EXISTS", "lockkit_queue:{a}"]), "0");
    queued(&fair, &second).await;
    queued(&barging, &first).await;
    assert_eq!(server.cli(&["LLEN", "lockkit_queue:{a}"]), "2");
    fair.release(&second).await.unwrap();
    barging.release(&holder).await.unwrap();
    let Wake::Granted(_) = wake(&barging, &first).await else {
        panic!()
    };
}

#[tokio::test]
async fn downgrade_leaves_no_ticket_behind() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let client = LockClient::new(store.clone()).unwrap();
    let lock = client.rw_lock("a").unwrap();
    for _ in 0..3 {
        let writer = lock.write().acquire().await.unwrap();
        writer.downgrade().await.unwrap().release().await.unwrap();
    }
    assert_eq!(store.counts().tickets, 0);
}

/// Another process goes on with it.
#[tokio::test]
async fn detached_hold_leaves_no_ticket_behind() {
    let server = Server::start(&[]).await;
    let (store, other) = (server.open().await, server.open().await);
    let guard = LockClient::new(store.clone()).unwrap().lock("a").unwrap();
    let text = guard.acquire().await.unwrap().detach().await.unwrap();
    assert_eq!(store.counts().tickets, 0);
    let adopted = LockClient::new(other).unwrap().adopt(&text).await.unwrap();
    adopted.release().await.unwrap();
}

/// A lock that is kept after its last guard, and was deleted by hand.
#[tokio::test]
async fn kept_lock_that_is_lost_leaves_no_ticket_behind() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    let client = LockClient::new(store.clone()).unwrap();
    let lock = client.lock("a").unwrap().with_min_hold(TTL * 2);
    let guard = lock.acquire().await.unwrap();
    server.cli(&["DEL", "a"]);
    drop(guard);
    let forgotten = async {
        while store.counts().tickets > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let forgotten = tokio::time::timeout(Duration::from_secs(5), forgotten);
    forgotten.await.unwrap();
}

/// Replicas acknowledge what is written, and nothing else.
#[tokio::test]
async fn hold_that_is_confirmed_is_written() {
    let server = Server::start(&[]).await;
    let (store, ticket) = (server.open().await, ticket("a"));
    granted(&store, &ticket).await;
    let before = server.calls("pexpire");
    granted(&store, &ticket).await;
    // Shorter than its lease, which stays.
    let renewed = store.renew(&[ticket.with_ttl(TTL / 2)]).await;
    assert!(matches!(renewed[..], [Ok(Renewal::Renewed { .. })]));
    assert_eq!(server.calls("pexpire") - before, 2);
    let left: u64 = server.cli(&["PTTL", "a"]).parse().unwrap();
    assert!(u128::from(left) > TTL.as_millis() / 2, "{left}");
}

/// Its end is not known any more: it is not renewed, and others wait until the lock's own end.
#[tokio::test]
async fn lost_share_is_no_hold() {
    let server = Server::start(&[]).await;
    let store = server.open().await;
    for adopts in [false, true] {
        let of = NonZeroU32::new(2).unwrap();
        let permit = || ticket("a").with_mode(Mode::Permit { of });
        let (one, other, next) = (permit(), permit(), permit());
        granted(&store, &one).await;
        granted(&store, &other).await;
        server.cli(&["DEL", "lockkit_share:{a}"]);
        if adopts {
            let adopted = store.adopt(one.holder, &permit()).await.unwrap();
            assert!(matches!(adopted, Attempt::Held { .. }), "{adopted:?}");
        } else {
            queued(&store, &one).await;
        }
        queued(&store, &next).await;
        for ticket in [one, other, next] {
            store.release(&ticket).await.unwrap();
        }
        assert_eq!(server.cli(&["EXISTS", "a"]), "0");
    }
}
