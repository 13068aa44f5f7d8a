//! Several Redis servers that know nothing of each other.

use std::path::Path;

use async_trait::async_trait;

use super::port::local_hosts;
use super::{Processes, RedisServer, ServerClock, ServerProcess};
use crate::failure::Outcome;

/// The nodes of a Redlock. They are never in quarantine when they are started or restarted as a whole.
#[derive(Debug)]
pub struct RedlockServers {
    nodes: Vec<RedisServer>,
}

impl RedlockServers {
    /// Starts so many below this program itself, whose `main` calls
    /// [`guardian::serve`](super::guardian::serve) first, with further words of configuration.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if they cannot be started.
    pub async fn start(count: usize, words: &[&str]) -> Outcome<Self> {
        let guard = std::env::current_exe()?;
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(RedisServer::start(&guard, words).await?);
        }
        Self::of(nodes).await
    }

    /// Starts one with each of these clocks. With `redis-server`, whose allocator looks at the clock, none can be set.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if they cannot be started.
    pub async fn with_clocks(program: &Path, clocks: &[ServerClock]) -> Outcome<Self> {
        let guard = std::env::current_exe()?;
        let mut nodes = Vec::new();
        for clock in clocks {
            let mut command = clock.words()?;
            command.push(program.into());
            let words = ["--appendonly", "no"];
            nodes.push(RedisServer::start_command(&guard, &command, words).await?);
        }
        Self::of(nodes).await
    }

    async fn of(nodes: Vec<RedisServer>) -> Outcome<Self> {
        let servers = Self { nodes };
        servers.ready().await?;
        Ok(servers)
    }

    /// Starts five that forget everything when they end.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if they cannot be started.
    pub async fn forgetful() -> Outcome<Self> {
        Self::start(5, &["--appendonly", "no"]).await
    }

    /// The servers.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// Their hosts as the store takes them.
    pub fn hosts(&self) -> impl Iterator<Item = (&'static str, u16)> {
        self.nodes.iter().map(|node| ("127.0.0.1", node.port()))
    }

    /// The hosts in their URL.
    #[must_use]
    pub fn authority(&self) -> String {
        local_hosts(self.nodes().iter().map(RedisServer::port))
    }
}

#[async_trait]
impl Processes for RedlockServers {
    fn processes(&self) -> Vec<&ServerProcess> {
        self.nodes.iter().map(RedisServer::process).collect()
    }

    async fn ready(&self) -> Outcome {
        for node in &self.nodes {
            Processes::ready(node).await?;
            node.has_lost_nothing().await?;
            // Some have connected before.
            node.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await?;
        }
        Ok(())
    }
}
