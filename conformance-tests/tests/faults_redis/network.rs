//! Faults of the connection to the server, made by a proxy.

use std::time::Duration;

use conformance_tests::proxy::{Direction, Dropped, Flow, Proxy};
use conformance_tests::servers::RedisServer;
use conformance_tests::task::{acquire, spawn, within};
use conformance_tests::{Outcome, ensure};
use lockkit_core::contract::LockState;
use lockkit_core::{Error, Lock, LockClient};
use tokio::time::sleep;

use crate::world::{LONG, TTL, WAYS, client_at, impatient_at, only_tokens_left};

const SOON: Duration = Duration::from_secs(5);
/// The time that a busy machine may add to the report of a loss.
const RACE: Duration = Duration::from_millis(500);

/// A client behind a proxy, and one that is not.
struct Pair {
    proxy: Proxy,
    behind: LockClient,
    direct: LockClient,
}

impl Pair {
    async fn new(server: &RedisServer, way: &str, ttl: Duration) -> Outcome<Self> {
        let proxy = Proxy::start(([127, 0, 0, 1], server.port()).into()).await?;
        Ok(Self {
            behind: impatient_at(way, proxy.addr().port(), ttl).await?,
            direct: client_at(way, server.port(), ttl).await?,
            proxy,
        })
    }

    fn locks(&self, way: &str) -> Outcome<(Lock, Lock)> {
        let name = format!("jobs/{way}");
        Ok((self.behind.lock(name.as_str())?, self.direct.lock(name)?))
    }

    /// The server's answer to the next script does not arrive.
    fn drop_reply(&self, how: Dropped) {
        self.proxy.drop_reply(how, |request| {
            request.windows(4).any(|word| word == b"EVAL")
        });
    }
}

pub(crate) async fn grant_without_a_reply_is_one_hold() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        for how in [Dropped::Silence, Dropped::Reset] {
            let pair = Pair::new(&server, way, LONG).await?;
            let (lock, other) = pair.locks(way)?;
            // The script is known, so that its one answer is the one that counts.
            lock.acquire().await?.release().await?;
            pair.drop_reply(how);
            let guard = within(SOON, lock.acquire()).await??;
            let dropped = pair.proxy.counts().dropped_replies;
            ensure(dropped == 1, format!("{dropped} replies were dropped"))?;
            let state = other.inspect().await?;
            let ids = state.iter().flat_map(LockState::holder_ids);
            let holder = guard.holder().to_string();
            ensure(ids.eq([holder]), format!("{state:?}"))?;
            guard.check()?;
            guard.release().await?;
            within(SOON, other.acquire()).await??.release().await?;
        }
    }
    only_tokens_left(&server).await
}

pub(crate) async fn release_without_a_reply_is_a_release() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        for how in [Dropped::Silence, Dropped::Reset] {
            let pair = Pair::new(&server, way, LONG).await?;
            let (lock, other) = pair.locks(way)?;
            lock.acquire().await?.release().await?;
            let guard = lock.acquire().await?;
            let waiter = acquire(&other);
            pair.drop_reply(how);
            let released = within(SOON, guard.release()).await?;
            // A caller without an answer cannot know; the release is repeated in the background.
            let unknown = how == Dropped::Silence && is_indeterminate(&released);
            ensure(released.is_ok() || unknown, format!("{released:?}"))?;
            within(SOON, waiter.soon()).await???.release().await?;
            let dropped = pair.proxy.counts().dropped_replies;
            ensure(dropped == 1, format!("{dropped} replies were dropped"))?;
        }
    }
    only_tokens_left(&server).await
}

fn is_indeterminate(released: &lockkit_core::Result<()>) -> bool {
    let Err(Error::Backend(error)) = released else {
        return false;
    };
    error.outcome() == lockkit_core::Outcome::Indeterminate
}

pub(crate) async fn silent_connection_ends_the_hold_in_time() -> Outcome {
    let server = RedisServer::forgetful().await?;
    for way in WAYS {
        for direction in [Direction::Request, Direction::Reply] {
            let pair = Pair::new(&server, way, TTL).await?;
            let (lock, other) = pair.locks(way)?;
            let guard = lock.acquire().await?;
            let lost = spawn(guard.lost());
            let waiter = acquire(&other);
            pair.proxy.flow(direction, Flow::Discard);
            // No renewal was written later that counts.
            sleep(TTL).await;
            ensure(guard.check().is_err(), "it outlives its lease")?;
            within(RACE, lost.soon()).await??;
            let next = within(SOON, waiter.soon()).await???;
            ensure(next.token() > guard.token(), "the token has not grown")?;
            let again = acquire(&lock);
            pair.proxy.heal();
            next.check()?;
            next.release().await?;
            // On a new connection: the old one lost bytes.
            within(SOON * 2, again.soon()).await???.release().await?;
        }
    }
    only_tokens_left(&server).await
}
