//! `SET NX PX` on several servers at once, of which a majority decides; and looks again and again.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use lockkit::url::StoreUrl;
use tokio::time::sleep;

use super::redis::Redis;
use super::{Bare, Contender, Fact, Words, holding, poll};
use crate::failure::Outcome;
use crate::turns::Taken;

/// Longer than any turn.
const TTL: Duration = Duration::from_secs(30);
/// The longest pause between two looks, of which each has a length of its own.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub(super) struct Majority(Vec<Redis>);

impl Majority {
    pub(super) async fn open(url: &StoreUrl) -> Outcome<Self> {
        let nodes = url.hosts().iter().map(|host| Redis::at(url, Some(host)));
        Ok(Self(try_join_all(nodes).await?))
    }

    /// Takes it on a majority, or on none.
    async fn try_take(&self, name: &str, ttl: Duration) -> Outcome<bool> {
        let taken = try_join_all(self.0.iter().map(|node| node.try_take(name, ttl))).await?;
        if taken.iter().filter(|taken| **taken).count() > self.0.len() / 2 {
            return Ok(true);
        }
        let taken = self.0.iter().zip(taken).filter(|(_, taken)| *taken);
        try_join_all(taken.map(|(node, _)| node.delete(name))).await?;
        Ok(false)
    }

    async fn delete(&self, name: &str) -> Outcome {
        let deleted = try_join_all(self.0.iter().map(|node| node.delete(name)));
        deleted.await.map(drop)
    }
}

#[async_trait]
impl Bare for Majority {
    fn words(&self) -> Words {
        Words {
            cycle: "SET NX PX on all servers at once, then DEL on all",
            turn: "SET NX PX on all servers until a majority has it, DEL on all",
            recovery: "a key with PX ends; SET NX on all every millisecond",
            hold: "SET NX PX on all servers, then PEXPIRE in pipelines of 500",
        }
    }

    async fn facts(&self) -> Outcome<Vec<Fact>> {
        let mut facts = self.0[0].facts().await?;
        facts.push(("servers".to_owned(), self.0.len().to_string()));
        Ok(facts)
    }

    async fn cycle(&self, name: &str) -> Outcome {
        self.take(name, TTL).await?;
        self.delete(name).await
    }

    async fn contender(&self, name: &str, _: usize) -> Outcome<Box<dyn Contender>> {
        let (nodes, name) = (self.clone(), format!("{name}:bare"));
        Ok(Box::new(Turn { nodes, name }))
    }

    async fn take(&self, name: &str, ttl: Duration) -> Outcome<Box<dyn Any + Send + Sync>> {
        holding(self.try_take(name, ttl).await?, name)
    }

    async fn wait_for(&self, name: &str) -> Outcome {
        poll(|| self.try_take(name, Duration::from_secs(1))).await
    }

    async fn keep_all(&self, names: &[String], ttl: Duration) -> Outcome {
        let kept = try_join_all(self.0.iter().map(|node| node.keep_all(names, ttl)));
        kept.await.map(drop)
    }

    async fn sweep(&self, prefix: &str) -> Outcome {
        let swept = try_join_all(self.0.iter().map(|node| node.sweep(prefix)));
        swept.await.map(drop)
    }
}

struct Turn {
    nodes: Majority,
    name: String,
}

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        while !self.nodes.try_take(&self.name, TTL).await? {
            sleep(LONGEST_PAUSE.mul_f64(fastrand::f64())).await;
        }
        taken.now();
        self.nodes.delete(&self.name).await
    }
}
