//! A Redis or Valkey server on a free port, and words to it that no store is in between of.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::Path;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, FromRedisValue, RedisResult};

use super::{ServerCommand, ServerProcess, free_port};
use crate::failure::{Failure, Outcome};

/// A server of the test's own. It keeps nothing on disk, unless its options say so.
#[derive(Debug)]
pub struct RedisServer {
    process: ServerProcess,
    port: u16,
}

impl RedisServer {
    /// The program that Debian's package `redis-server` brings.
    pub const PROGRAM: &'static str = "redis-server";

    /// Starts `program`, below this program itself, whose `main` calls
    /// [`guardian::serve`](super::guardian::serve) first. `options` are those of its command line.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started, or does not answer.
    pub async fn start(program: &Path, options: &[&str]) -> Outcome<Self> {
        let mut last = Failure::new("it was never tried");
        // Somebody else may take the port before the server does.
        for _ in 0..3 {
            match Self::start_on(free_port()?, program, options).await {
                Ok(server) => return Ok(server),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    async fn start_on(port: u16, program: &Path, options: &[&str]) -> Outcome<Self> {
        let number = port.to_string();
        let fixed = ["--port", &number, "--bind", "127.0.0.1"];
        let kept = ["--save", "", "--appendonly", "no", "--daemonize", "no"];
        let arguments = fixed.into_iter().chain(kept).chain(options.iter().copied());
        let process = ServerCommand::new(std::env::current_exe()?, program)
            .args(arguments.map(OsString::from))
            .start()?;
        let server = Self { process, port };
        server.ready().await?;
        Ok(server)
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// - [`Failure`] if it does not.
    pub async fn ready(&self) -> Outcome {
        let ping = async || self.run::<String>(&["PING"]).await;
        self.process.ready(ping).await.map(drop)
    }

    /// Where it listens, on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its address as a client of any language reads it: `redis://127.0.0.1:6379`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}:{}", Ipv4Addr::LOCALHOST, self.port)
    }

    /// The process, for faults.
    #[must_use]
    pub const fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// A connection of its own.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let client = Client::open(self.url())?;
        client.get_multiplexed_async_connection().await
    }

    /// Carries out one command on a connection of its own.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn run<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let Some((command, arguments)) = words.split_first() else {
            return Ok(T::from_redis_value(redis::Value::Nil)?);
        };
        let mut connection = self.connect().await?;
        let command = redis::cmd(command).arg(arguments).to_owned();
        command.query_async(&mut connection).await
    }

    /// All its keys, sorted.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn keys(&self) -> RedisResult<Vec<String>> {
        let mut keys: Vec<String> = self.run(&["KEYS", "*"]).await?;
        keys.sort();
        Ok(keys)
    }

    /// How often `command` was carried out since the start.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn calls(&self, command: &str) -> RedisResult<u64> {
        let stats: String = self.run(&["INFO", "commandstats"]).await?;
        let prefix = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&*prefix));
        let count = line.and_then(|line| line.split(',').next()?.parse().ok());
        Ok(count.unwrap_or(0))
    }

    /// Kills it as a power cut would and starts it again: on what it keeps on disk.
    ///
    /// # Errors
    /// - [`Failure`] if it does not come back.
    pub async fn restart(&self) -> Outcome {
        self.process.restart()?;
        self.ready().await
    }
}
