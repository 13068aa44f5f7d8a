//! `SET NX PX` and `DEL`; a list and a message for turns.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;
use lockkit::url::{Host, StoreUrl};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, IntoConnectionInfo, ProtocolVersion,
    PushInfo, PushKind, RedisConnectionInfo, Script,
};
use tokio::sync::mpsc;

use super::{Bare, Contender, Fact, UNKNOWN, Words, holding, poll};
use crate::built_in;
use crate::counter::{self, Counter};
use crate::failure::{Failure, Outcome};
use crate::turns::Taken;

/// A list as queue, without leases, tokens or heartbeats: nothing that passes turns on can do less.
const TAKE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX') then return 1 end
    redis.call('RPUSH', KEYS[2], ARGV[1]) return 0";
const PASS: &str = "local next = redis.call('LPOP', KEYS[2])
    if next then redis.call('SET', KEYS[1], next) redis.call('PUBLISH', next, '1')
    else redis.call('DEL', KEYS[1]) end return 1";

/// As many commands as the lock store sends in one request.
const CHUNK: usize = 500;

#[derive(Clone)]
pub(super) struct Redis {
    client: Client,
    connection: MultiplexedConnection,
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis").finish_non_exhaustive()
    }
}

impl Redis {
    pub(super) async fn open(url: &StoreUrl) -> Outcome<Self> {
        Self::at(url, url.hosts().first()).await
    }

    /// Opens one of the servers that the URL names.
    pub(super) async fn at(url: &StoreUrl, host: Option<&Host>) -> Outcome<Self> {
        let name = host.map_or("127.0.0.1", |host| host.name()).to_owned();
        let port = host.and_then(|host| host.port()).unwrap_or(6379);
        let address = match url.scheme() {
            "redis+unix" => ConnectionAddr::Unix(url.path().into()),
            "redis" | "redlock" => ConnectionAddr::Tcp(name, port),
            _ => return Err(Failure::new("the bare operations are not sent over TLS")),
        };
        let mut settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        if let Some(user) = url.user() {
            settings = settings.set_username(user);
        }
        if let Some(password) = url.password() {
            settings = settings.set_password(password);
        }
        let number = url.path().trim_start_matches('/').parse();
        if let (Ok(number), false) = (number, url.scheme() == "redis+unix") {
            settings = settings.set_db(number);
        }
        let tcp = redis::io::tcp::TcpSettings::default().set_nodelay(true);
        let info = address.into_connection_info()?;
        let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
        let client = Client::open(info)?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Self { client, connection })
    }

    pub(super) async fn try_take(&self, name: &str, ttl: Duration) -> Outcome<bool> {
        let mut connection = self.connection.clone();
        let taken: Option<String> = set(name, ttl).query_async(&mut connection).await?;
        Ok(taken.is_some())
    }

    pub(super) async fn delete(&self, name: &str) -> Outcome {
        let mut connection = self.connection.clone();
        let mut del = redis::cmd("DEL");
        Ok(del.arg(name).exec_async(&mut connection).await?)
    }

    async fn information(&self, section: &str) -> Outcome<String> {
        let mut connection = self.connection.clone();
        let mut info = redis::cmd("INFO");
        Ok(info.arg(section).query_async(&mut connection).await?)
    }

    /// A setting, where this user may read it.
    async fn setting(&self, name: &str) -> Option<String> {
        let mut connection = self.connection.clone();
        let mut get = redis::cmd("CONFIG");
        let answer = get.arg("GET").arg(name).query_async(&mut connection).await;
        let pairs: std::collections::HashMap<String, String> = answer.ok()?;
        pairs.into_values().next()
    }
}

fn set(name: &str, ttl: Duration) -> redis::Cmd {
    let mut set = redis::cmd("SET");
    set.arg(name).arg("bare").arg("NX").arg("PX");
    set.arg(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    set
}

#[async_trait]
impl Bare for Redis {
    fn words(&self) -> Words {
        Words {
            cycle: "SET NX PX + DEL",
            turn: "a list of waiters and PUBLISH, in two scripts",
            recovery: "a key with PX ends; SET NX every millisecond",
            hold: "SET NX PX, then PEXPIRE in pipelines of 500",
        }
    }

    async fn facts(&self) -> Outcome<Vec<Fact>> {
        let info = self.information("server").await?;
        let of = |key: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|rest| rest.strip_prefix(':'))
        };
        let server = match (of("valkey_version"), of("redis_version")) {
            (Some(version), _) => format!("Valkey {version}"),
            (None, Some(version)) => format!("Redis {version}"),
            (None, None) => UNKNOWN.to_owned(),
        };
        let mut facts = vec![("server".to_owned(), server), built_in::REDIS.as_client()];
        for name in [
            "appendonly",
            "appendfsync",
            "save",
            "maxmemory-policy",
            "io-threads",
        ] {
            let value = self.setting(name).await;
            let value = value.unwrap_or_else(|| UNKNOWN.to_owned());
            let value = if value.is_empty() {
                "off".into()
            } else {
                value
            };
            facts.push((name.to_owned(), value));
        }
        Ok(facts)
    }

    async fn cycle(&self, name: &str) -> Outcome {
        self.take(name, Duration::from_secs(30)).await?;
        self.delete(name).await
    }

    async fn contender(&self, name: &str, number: usize) -> Outcome<Box<dyn Contender>> {
        let (sender, messages) = mpsc::unbounded_channel();
        let options = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_push_sender(move |push: PushInfo| {
                if push.kind == PushKind::Message {
                    // The waiter may have ended.
                    let _ = sender.send(());
                }
                Ok::<(), std::convert::Infallible>(())
            });
        let mut connection = self
            .client
            .get_multiplexed_async_connection_with_config(&options)
            .await?;
        let channel = format!("{name}:{}:{number}", std::process::id());
        connection.subscribe(&channel).await?;
        Ok(Box::new(Turn {
            connection,
            messages,
            channel,
            keys: [format!("{name}:bare"), format!("{name}:queue")],
            take: Script::new(TAKE),
            pass: Script::new(PASS),
        }))
    }

    fn counter(&self, name: &str) -> Option<Box<dyn Counter>> {
        let (client, connection) = (self.client.clone(), self.connection.clone());
        Some(Box::new(counter::redis::Key::new(client, connection, name)))
    }

    async fn take(&self, name: &str, ttl: Duration) -> Outcome<Box<dyn Any + Send + Sync>> {
        holding(self.try_take(name, ttl).await?, name)
    }

    async fn wait_for(&self, name: &str) -> Outcome {
        poll(|| self.try_take(name, Duration::from_secs(1))).await
    }

    async fn take_all(
        &self,
        names: &[String],
        ttl: Duration,
    ) -> Outcome<Vec<Box<dyn Any + Send + Sync>>> {
        let mut connection = self.connection.clone();
        for names in names.chunks(CHUNK) {
            let mut pipeline = redis::pipe();
            for name in names {
                pipeline.add_command(set(name, ttl)).ignore();
            }
            let () = pipeline.query_async(&mut connection).await?;
        }
        Ok(Vec::new())
    }

    async fn keep_all(&self, names: &[String], ttl: Duration) -> Outcome {
        let mut connection = self.connection.clone();
        let ttl = u64::try_from(ttl.as_millis())?;
        for names in names.chunks(CHUNK) {
            let mut pipeline = redis::pipe();
            for name in names {
                pipeline.cmd("PEXPIRE").arg(name).arg(ttl).ignore();
            }
            let () = pipeline.query_async(&mut connection).await?;
        }
        Ok(())
    }

    async fn sweep(&self, prefix: &str) -> Outcome {
        let mut connection = self.connection.clone();
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("*{prefix}*"));
            let found = scan.arg("COUNT").arg(5000).query_async(&mut connection);
            let (next, keys): (u64, Vec<String>) = match found.await {
                // Proxies have no SCAN; what is left ends by itself.
                Err(error)
                    if error.kind() == ErrorKind::Server(redis::ServerErrorKind::ResponseError) =>
                {
                    return Ok(());
                }
                found => found?,
            };
            if !keys.is_empty() {
                let mut unlink = redis::cmd("UNLINK");
                unlink.arg(keys).exec_async(&mut connection).await?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }
}

struct Turn {
    connection: MultiplexedConnection,
    messages: mpsc::UnboundedReceiver<()>,
    channel: String,
    keys: [String; 2],
    take: Script,
    pass: Script,
}

#[async_trait]
impl Contender for Turn {
    async fn turn(&mut self, taken: &mut Taken) -> Outcome {
        let mut take = self.take.prepare_invoke();
        take.key(&self.keys).arg(&self.channel);
        let free: bool = take.invoke_async(&mut self.connection).await?;
        if !free && self.messages.recv().await.is_none() {
            return Err(Failure::new("the connection ended"));
        }
        taken.now();
        let mut pass = self.pass.prepare_invoke();
        pass.key(&self.keys);
        Ok(pass.invoke_async(&mut self.connection).await?)
    }
}
