//! Listens on the sharded channels of locks in a cluster, on which Redisson's releases are published.
//!
//! They need a connection of their own, which makes no other requests: a server that gives a slot away ends its
//! subscriptions in the middle of replies.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::pending;
use lockkit_core::Waiting;
use lockkit_core::store::Backoff;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Msg, Pipeline, ProtocolVersion, PushInfo, PushKind, Value};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::config::Protocol;
use crate::connection::{IDLE_CHECK, Link};
use crate::handshake::{deliver, info, log_in};

const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Listens while somebody waits. If it cannot, waiters notice Redisson's releases at their next recheck.
pub(crate) async fn listen(link: &Link) -> Infallible {
    let wakes = link.config.waiting == Waiting::Push && link.config.protocol != Protocol::Resp2;
    if !wakes {
        return pending().await;
    }
    let mut pauses = Backoff::new(SHORTEST_PAUSE, LONGEST_PAUSE);
    loop {
        while link.subscriptions.of_locks().is_empty() {
            link.subscriptions.changed.notified().await;
        }
        match connect_and_listen(link).await {
            // Before Redis 7.
            Listened::Unknown => return pending().await,
            Listened::Heard => pauses.reset(),
            Listened::Failed => {}
        }
        sleep(pauses.pause()).await;
    }
}

/// How a connection has ended.
enum Listened {
    Unknown,
    /// After some channel was subscribed.
    Heard,
    Failed,
}

/// A connection for subscriptions.
struct Shards<'a> {
    link: &'a Link,
    connection: MultiplexedConnection,
    subscribed: HashSet<String>,
    /// That this user may not subscribe.
    refused: HashSet<String>,
    /// How many subscriptions it has ended itself.
    left: usize,
}

async fn connect_and_listen(link: &Link) -> Listened {
    // How many subscriptions have ended.
    let (counter, mut left) = watch::channel(0_usize);
    let subscriptions = Arc::clone(&link.subscriptions);
    let pushed = move |push: PushInfo| match push.kind {
        PushKind::SUnsubscribe => counter.send_modify(|count| *count += 1),
        _ => deliver(&subscriptions, Msg::from_push_info(push)),
    };
    let info = info(&link.config, ProtocolVersion::RESP3);
    let login = log_in(&link.config, &info, pushed);
    let Ok(Ok((connection, mut reader))) = timeout(link.config.connect_timeout, login).await else {
        return Listened::Failed;
    };
    let mut shards = Shards {
        link,
        connection,
        subscribed: HashSet::new(),
        refused: HashSet::new(),
        left: 0,
    };
    while let Some(known) = shards.follow().await {
        if !known {
            return Listened::Unknown;
        }
        if *left.borrow_and_update() != shards.left {
            // The server has ended one, because it gives a slot away. Which reply belongs to which request is open now.
            link.misplaced.notify_one();
            break;
        }
        tokio::select! {
            _ = reader.join_next() => break,
            more = left.changed() => if more.is_err() { break },
            () = link.subscriptions.changed.notified() => {}
            () = sleep(IDLE_CHECK) => {
                if shards.send([redis::cmd("PING")]).await.is_none() {
                    break;
                }
            }
        }
    }
    match shards.subscribed.is_empty() {
        true => Listened::Failed,
        false => Listened::Heard,
    }
}

impl Shards<'_> {
    /// Subscribes the channels of locks that are waited for, and no others. `None` if the connection is of no use any
    /// more; `false` if the server knows no such channels.
    async fn follow(&mut self) -> Option<bool> {
        let wanted = self.link.subscriptions.of_locks();
        self.refused.retain(|channel| wanted.contains(channel));
        let unwanted = |channel: &String| !wanted.contains(channel);
        let gone: Vec<_> = self.subscribed.extract_if(unwanted).collect();
        self.left += gone.len();
        self.send(gone.iter().map(|channel| command("SUNSUBSCRIBE", channel)))
            .await?;
        let is_new = |channel: &String| {
            !(self.subscribed.contains(channel) || self.refused.contains(channel))
        };
        let new: Vec<_> = wanted.into_iter().filter(is_new).collect();
        let replies = self.send(new.iter().map(|channel| command("SSUBSCRIBE", channel)));
        for (channel, reply) in new.iter().zip(replies.await?) {
            match reply {
                Value::ServerError(error) if error.code() == "ERR" => return Some(false),
                // Of a lock that is elsewhere now. It may come back: it is asked for again.
                Value::ServerError(error) if error.code() != "NOPERM" => false,
                Value::ServerError(_) => self.refused.insert(channel.clone()),
                _ => self.subscribed.insert(channel.clone()),
            };
        }
        Some(true)
    }

    /// Sends commands, and returns their replies.
    async fn send(&mut self, commands: impl IntoIterator<Item = Cmd>) -> Option<Vec<Value>> {
        let mut pipeline = Pipeline::new();
        for command in commands {
            pipeline.add_command(command);
        }
        let count = pipeline.len();
        if count == 0 {
            return Some(Vec::new());
        }
        let limit = self.link.config.response_timeout / 2;
        let replies = self.connection.send_packed_commands(&pipeline, 0, count);
        timeout(limit, replies).await.ok()?.ok()
    }
}

fn command(verb: &str, channel: &str) -> Cmd {
    let mut command = redis::cmd(verb);
    command.arg(channel);
    command
}
