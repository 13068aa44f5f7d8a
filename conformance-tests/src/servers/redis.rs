//! A Redis server, and commands to it that do not use the store under test.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, FromRedisValue, RedisResult, Value};
use async_trait::async_trait;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::{Processes, ServerCommand, ServerProcess, free_port};
use crate::failure::{Failure, Outcome, ensure};

/// What an operator would write who knows that a server has lost nothing.
const HAS_LOST_NOTHING: &str = "
    local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
    local run, id = string.match(info, 'run_id:(%x+)'), string.match(info, 'master_replid:(%x+)')
    local function has_lost_nothing(key)
      redis.call('HSET', key, 'run', run, 'id', id, 'since', '0', 'longest', '0')
    end
    ";

/// A `redis-server` on a free port of the loopback address. It keeps every write, so that a restart
/// loses nothing.
#[derive(Debug)]
pub struct RedisServer {
    process: ServerProcess,
    port: u16,
}

impl RedisServer {
    /// What the system calls it.
    pub const PROGRAM: &'static str = "redis-server";

    /// Starts one below `guard`, with further words of configuration.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub async fn start(
        guard: &Path,
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Outcome<Self> {
        Self::start_program(guard, Self::PROGRAM.as_ref(), words).await
    }

    /// Starts a program that is not the system's `redis-server` but understands its options.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub async fn start_program(
        guard: &Path,
        program: &Path,
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Outcome<Self> {
        Self::start_command(guard, &[program.into()], words).await
    }

    /// The first number of the version of a program.
    pub(super) fn version(program: &Path) -> Outcome<u32> {
        let told = Command::new(program).arg("--version").output()?.stdout;
        let told = String::from_utf8_lossy(&told);
        let version = told.split_once("v=").map_or("", |(_, version)| version);
        Ok(version.split('.').next().unwrap_or_default().parse()?)
    }

    /// Starts the program at the end of `command`.
    pub(super) async fn start_command(
        guard: &Path,
        command: &[OsString],
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Outcome<Self> {
        Self::start_at(free_port()?, guard, command, words).await
    }

    /// The same at a chosen port.
    pub(super) async fn start_at(
        port: u16,
        guard: &Path,
        command: &[OsString],
        words: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Outcome<Self> {
        let [first, rest @ ..] = command else {
            return Err(Failure::new("no program"));
        };
        let plain =
            format!("--port {port} --bind 127.0.0.1 --save  --appendonly yes --appendfsync always");
        let process = ServerCommand::new(guard, first)
            .args(rest)
            .args(plain.split(' '))
            .args(words.into_iter().map(|word| word.as_ref().to_owned()))
            .start()?;
        let server = Self { process, port };
        server.ready().await?;
        Ok(server)
    }

    /// Starts one that forgets everything when it ends, below this program itself, whose `main` calls
    /// [`guardian::serve`](super::guardian::serve) first.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be started.
    pub async fn forgetful() -> Outcome<Self> {
        Self::start(&std::env::current_exe()?, ["--appendonly", "no"]).await
    }

    /// Its address as a client in any language reads it: `redis://127.0.0.1:6379`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The server's process, to be frozen.
    #[must_use]
    pub const fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// Asks it on a connection of its own; a list is answered flat, nothing as an empty list.
    ///
    /// # Errors
    /// - [`Failure`] if it does not answer, or with an error.
    pub async fn ask(&self, words: &[&str]) -> Outcome<Vec<String>> {
        Self::ask_at(self.port, words).await
    }

    /// Asks the one at this port in the same way.
    pub(super) async fn ask_at(port: u16, words: &[&str]) -> Outcome<Vec<String>> {
        let mut socket = TcpStream::connect(("127.0.0.1", port)).await?;
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        socket.write_all(request.as_bytes()).await?;
        let mut reader = BufReader::new(socket);
        let (mut answer, mut expected) = (Vec::new(), 1);
        while expected > 0 {
            expected -= 1;
            let mut line = String::new();
            reader.read_line(&mut line).await?;
            let line = line.trim_end();
            let (kind, rest) = line.split_at_checked(1).unwrap_or(("", ""));
            match kind {
                "+" | ":" => answer.push(rest.to_owned()),
                "*" => expected += rest.parse::<usize>().unwrap_or(0),
                "$" => {
                    let Ok(length) = rest.parse::<usize>() else {
                        continue;
                    };
                    let mut bytes = vec![0; length + 2];
                    reader.read_exact(&mut bytes).await?;
                    bytes.truncate(length);
                    answer.push(String::from_utf8_lossy(&bytes).into_owned());
                }
                _ => return Err(Failure::new(format!("the server says {line:?}"))),
            }
        }
        Ok(answer)
    }

    /// A connection of its own, of a client that knows nothing of locks.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let client = Client::open(self.url())?;
        client.get_multiplexed_async_connection().await
    }

    /// Carries out one command on such a connection.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn run<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let Some((command, arguments)) = words.split_first() else {
            return Ok(T::from_redis_value(Value::Nil)?);
        };
        let mut connection = self.connect().await?;
        let command = ::redis::cmd(command).arg(arguments).to_owned();
        command.query_async(&mut connection).await
    }

    /// Says in each database that the server has lost nothing, so that clients with a quarantine need not wait for
    /// its end. An operator would do it for one database.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn has_lost_nothing(&self) -> Outcome {
        const SCRIPT: &str = "for database = 1, ARGV[1] do
              redis.call('SELECT', database - 1)
              has_lost_nothing('lockkit_primary')
            end";
        let databases = self.ask(&["CONFIG", "GET", "databases"]).await?;
        let script = [HAS_LOST_NOTHING, SCRIPT].concat();
        let words = ["EVAL", &script, "0", &databases[1]];
        self.ask(&words).await.map(drop)
    }

    /// Says it where a master of a cluster keeps its quarantine.
    ///
    /// # Errors
    /// - The server's, or that it cannot be reached.
    pub async fn has_lost_nothing_at(&self, key: &str) -> Outcome {
        let script = [HAS_LOST_NOTHING, "has_lost_nothing(KEYS[1])"].concat();
        self.ask(&["EVAL", &script, "1", key]).await.map(drop)
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
}

#[async_trait]
impl Processes for RedisServer {
    fn processes(&self) -> Vec<&ServerProcess> {
        vec![&self.process]
    }

    async fn ready(&self) -> Outcome {
        let probe = || async { ensure(self.ask(&["PING"]).await? == ["PONG"], "no PONG") };
        self.process.ready(probe).await
    }
}
