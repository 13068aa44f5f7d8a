//! A server that loses the holds of readers and permits, all of them or some.

use std::time::Duration;

use conformance_tests::loss::{both_lost, grown, lost};
use conformance_tests::servers::RedisServer;
use conformance_tests::task::{acquire, within};
use conformance_tests::{Failure, Outcome, Server, ensure};
use lockkit_core::{Guard, Lock};

use crate::world::{LONG, TTL, WAYS, client_at, only_tokens_left};

/// The time that a busy machine or a new connection adds.
const SOON: Duration = Duration::from_secs(5);
const NAME: &str = "jobs";
const SHARES: &str = "lockkit_share:{jobs}";

/// The lock in a mode that two may hold together, as a new client sees it.
async fn lock(server: &RedisServer, way: &str, mode: &str, ttl: Duration) -> Outcome<Lock> {
    let client = client_at(way, server.port(), ttl).await?;
    Ok(match mode {
        "permit" => client.semaphore(NAME, 2)?,
        "write" => client.rw_lock(NAME)?.write(),
        _ => client.rw_lock(NAME)?.read(),
    })
}

/// Two holders.
async fn two(server: &RedisServer, way: &str, mode: &str) -> Outcome<[Guard; 2]> {
    let mut guards = Vec::new();
    for _ in 0..2 {
        let lock = lock(server, way, mode, TTL).await?;
        guards.push(within(SOON, lock.acquire()).await??);
    }
    let wrong = |_| Failure::new("not two guards");
    guards.try_into().map_err(wrong)
}

pub(crate) async fn flushall_ends_all_shared_holds() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        for mode in ["read", "permit"] {
            let guards = two(&server, way, mode).await?;
            let writer = acquire(&lock(&server, way, "write", LONG).await?);
            server.ask(&["FLUSHALL"]).await?;
            let before = both_lost(guards, SOON).await?;
            let next = within(SOON, writer.soon()).await???;
            grown(&next, before)?;
            next.release().await?;
        }
    }
    only_tokens_left(&server).await
}

/// Of two holders the older data has one: that one holds on, the other loses.
pub(crate) async fn restored_data_keep_the_holders_that_are_in_them() -> Outcome {
    // Longer than it takes to start a server.
    let ttl = TTL * 4;
    for mode in ["read", "permit"] {
        let server = RedisServer::forgetful().await?;
        let kept = lock(&server, "fifo", mode, ttl).await?.acquire().await?;
        server.ask(&["SAVE"]).await?;
        let later = lock(&server, "fifo", mode, ttl).await?.acquire().await?;
        server.restart().await?;
        let before = lost(later, SOON).await?;
        kept.check()?;
        let writer = lock(&server, "fifo", "write", ttl).await?;
        let none = writer.try_acquire().await?.is_none();
        ensure(none, "a writer holds beside the holder that was restored")?;
        let next = lock(&server, "fifo", mode, ttl).await?.acquire().await?;
        grown(&next, before)?;
        next.release().await?;
        kept.release().await?;
        only_tokens_left(&server).await?;
    }
    Ok(())
}

/// Without the leases of its holders the lock stays held until the last of them would have ended.
pub(crate) async fn lost_leases_end_the_holds_and_let_no_other_in_before() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        for mode in ["read", "permit"] {
            let mut late = Vec::new();
            for mode in ["read", "permit", "write"] {
                late.push(lock(&server, way, mode, TTL).await?);
            }
            let guards = two(&server, way, mode).await?;
            server.ask(&["DEL", SHARES]).await?;
            for late in late {
                let none = late.try_acquire().await?.is_none();
                ensure(none, "granted while the holders may rely on their leases")?;
            }
            let writer = acquire(&lock(&server, way, "write", LONG).await?);
            let before = both_lost(guards, SOON).await?;
            let next = within(TTL + SOON, writer.soon()).await???;
            grown(&next, before)?;
            next.release().await?;
        }
    }
    only_tokens_left(&server).await
}

/// What is left of the leases counts for nothing, neither for those who held nor against those who come.
pub(crate) async fn leases_without_their_lock_are_no_holds() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        for mode in ["read", "permit"] {
            let guards = two(&server, way, mode).await?;
            server.ask(&["DEL", NAME]).await?;
            let next = two(&server, way, mode).await?;
            let before = both_lost(guards, SOON).await?;
            for guard in next {
                grown(&guard, before)?;
                guard.check()?;
                guard.release().await?;
            }
        }
    }
    only_tokens_left(&server).await
}
