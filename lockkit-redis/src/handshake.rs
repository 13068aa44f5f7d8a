//! Makes a connection: socket, protocol, user, database, subscriptions.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use lockkit_core::Outcome;
use redis::aio::{AsyncStream, MultiplexedConnection, PubSub, PubSubSink};
use redis::{
    AsyncConnectionConfig, ErrorKind, Msg, ProtocolVersion, PushInfo, RedisConnectionInfo,
    RedisError, Value,
};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::config::{Address, Protocol, RedisStoreBuilder};
use crate::error::{CLUSTER, is_cut_off, of_connecting};
use crate::reply::Reply;
use crate::subscriptions::Subscriptions;

/// A connection that is ready, with the tasks that end with it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) connection: MultiplexedConnection,
    /// The connection that messages come on, if it is another one: RESP2 needs that.
    pub(crate) second: Option<PubSubSink>,
    /// Whether the server evicts keys with an expiry first.
    pub(crate) volatile: bool,
    /// Of the failover that made it the master; zero without Sentinels.
    pub(crate) epoch: i64,
    clustered: bool,
    /// The tasks that read the connections; aborted when this is dropped.
    tasks: JoinSet<()>,
}

impl Opened {
    /// Adds a task that ends the connection when it returns.
    pub(crate) fn end_with(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Waits until one of the connections has ended.
    pub(crate) async fn ended(&mut self) {
        self.tasks.join_next().await;
    }

    /// Fails if the server does not reply. An error is a reply.
    pub(crate) async fn ping(&mut self) -> Result<(), RedisError> {
        let ping = redis::cmd("PING");
        self.connection.send_packed_command(&ping).await?;
        match &mut self.second {
            Some(second) => second.ping::<Value>().await.map(drop),
            None => Ok(()),
        }
    }

    /// Sends one command.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<Reply, RedisError> {
        self.run(redis::Cmd::new().arg(words)).await
    }

    pub(crate) async fn run(&mut self, command: &redis::Cmd) -> Result<Reply, RedisError> {
        let reply = self.connection.send_packed_command(command).await?;
        reply.extract_error().map(Reply::of)
    }

    async fn subscribe(&mut self, channels: &[String]) -> Result<(), RedisError> {
        match &mut self.second {
            Some(second) => second.subscribe(channels).await,
            None => self.connection.subscribe(channels).await,
        }
    }

    /// Subscribes the allowed ones and returns them: a forbidden channel does not prevent the others. If
    /// the server refuses several at once, it tries each half, until too many are refused.
    pub(crate) async fn subscribe_allowed(
        &mut self,
        channels: &[String],
    ) -> Result<Vec<String>, RedisError> {
        let (mut allowed, mut refused) = (Vec::new(), 0);
        let mut parts = vec![channels];
        while let Some(part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            match self.subscribe(part).await {
                Ok(()) => allowed.extend_from_slice(part),
                Err(error) if error.is_io_error() => return Err(error),
                // Each costs several round trips: with this many forbidden, skip the rest.
                Err(_) if refused == 8 => break,
                Err(_) if part.len() == 1 => refused += 1,
                Err(_) => parts.extend(<[_; 2]>::from(part.split_at(part.len() / 2))),
            }
        }
        Ok(allowed)
    }

    pub(crate) async fn unsubscribe(&mut self, channels: &[String]) -> Result<(), RedisError> {
        match &mut self.second {
            Some(second) => second.unsubscribe(channels).await,
            None => self.connection.unsubscribe(channels).await,
        }
    }

    /// The reply stays unknown if `INFO` is forbidden.
    async fn read_server_info(&mut self) {
        let info = redis::cmd("INFO").query_async(&mut self.connection).await;
        let info: String = info.unwrap_or_default();
        // A token key with an expiry would be evicted first.
        self.volatile = info.contains("maxmemory_policy:volatile-");
        self.clustered = info.contains("cluster_enabled:1");
    }
}

/// Why there is no connection.
pub(crate) type Failure = (Outcome, String);

/// Makes a connection within `connect_timeout`. If it fails, no request was sent. One without subscriptions speaks
/// RESP2 and only logs in, for proxies and for single questions.
pub(crate) async fn open(
    config: &RedisStoreBuilder,
    subscriptions: Option<&Arc<Subscriptions>>,
) -> Result<Opened, Failure> {
    let (limit, address) = (config.connect_timeout, &config.address);
    match timeout(limit, negotiate(config, subscriptions)).await {
        Ok(Ok(opened)) if opened.clustered && !config.clustered => {
            Err((Outcome::Rejected, format!("{CLUSTER} ({address})")))
        }
        Ok(opened) => opened.map_err(|error| failure(config, &error)),
        Err(_) => Err(no_connection(config)),
    }
}

/// What is said when `connect_timeout` is over.
pub(crate) fn no_connection(config: &RedisStoreBuilder) -> Failure {
    let (limit, address) = (config.connect_timeout, &config.address);
    let why = format!("no connection within {limit:?} ({address})");
    (Outcome::Unavailable, why)
}

/// Makes a connection with RESP3 or, where that may be, with RESP2.
async fn negotiate(
    config: &RedisStoreBuilder,
    subscriptions: Option<&Arc<Subscriptions>>,
) -> Result<Opened, RedisError> {
    if subscriptions.is_none() || config.protocol == Protocol::Resp2 {
        return speak(config, subscriptions, ProtocolVersion::RESP2).await;
    }
    match speak(config, subscriptions, ProtocolVersion::RESP3).await {
        Err(error) if config.protocol == Protocol::Auto && knows_no_hello(&error) => {
            speak(config, subscriptions, ProtocolVersion::RESP2).await
        }
        opened => opened,
    }
}

/// The likely reason: a proxy closes the connection for a command that it does not know.
const CUT_OFF: &str = " before the connection was ready: is it a Redis server? A proxy that knows no messages \
                       needs `wake=poll`, and no user and no number of a database if it knows none";
const USER_ALONE: &str = ": there is a user and no password; where there are no users write \
                          `redis://:password@host`";
const NO_USER: &str = ": there is neither user nor password; write `redis://:password@host` or \
                      `redis://user:password@host`";

/// Adds the address, and what may help, to the error of a failed connection.
fn failure(config: &RedisStoreBuilder, error: &RedisError) -> Failure {
    let (outcome, text) = of_connecting(error);
    let hint = match (&config.user, &config.password) {
        _ if is_cut_off(error) => CUT_OFF,
        (Some(_), None) if error.code() == Some("NOAUTH") => USER_ALONE,
        (None, None) if error.code() == Some("NOAUTH") => NO_USER,
        _ => "",
    };
    (outcome, format!("{text} ({}){hint}", config.address))
}

/// Old servers and some proxies refuse HELLO, or close the connection.
fn knows_no_hello(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::RESP3NotSupported | ErrorKind::Extension | ErrorKind::Parse => true,
        ErrorKind::Server(_) => {
            let code = error.code().unwrap_or_default();
            !matches!(
                code,
                "LOADING" | "BUSY" | "MASTERDOWN" | "WRONGPASS" | "NOAUTH"
            )
        }
        ErrorKind::Io => error.is_connection_dropped() && !error.is_connection_refusal(),
        _ => false,
    }
}

pub(crate) fn info(config: &RedisStoreBuilder, protocol: ProtocolVersion) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default()
        .set_protocol(protocol)
        .set_lib_name("lockkit", env!("CARGO_PKG_VERSION"))
        .set_db(config.database);
    if let Some(user) = &config.user {
        info = info.set_username(user);
    }
    if let Some(password) = &config.password {
        info = info.set_password(password);
    }
    info
}

/// Opens a socket to the server, of any kind.
async fn socket(config: &RedisStoreBuilder) -> io::Result<Pin<Box<dyn AsyncStream + Send + Sync>>> {
    match &config.address {
        Address::Tcp { host, port } => {
            let socket = TcpStream::connect((host.as_str(), *port)).await?;
            // Without this, Nagle's algorithm delays a request by up to a round trip.
            socket.set_nodelay(true)?;
            #[cfg(feature = "tls")]
            if let Some(tls) = &config.tls {
                return Ok(Box::pin(crate::tls::wrap(tls, host, socket).await?));
            }
            Ok(Box::pin(socket))
        }
        Address::Sentinel { .. } | Address::Cluster(_) => Err(io::Error::other(
            "the address of the server was not looked up",
        )),
        #[cfg(unix)]
        Address::Unix(path) => Ok(Box::pin(tokio::net::UnixStream::connect(path).await?)),
        #[cfg(not(unix))]
        Address::Unix(_) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this system has no Unix sockets",
        )),
    }
}

/// Makes a connection that is logged in. The server's messages are given to `pushed`, with RESP3.
pub(crate) async fn log_in(
    config: &RedisStoreBuilder,
    info: &RedisConnectionInfo,
    pushed: impl Fn(PushInfo) + Send + Sync + 'static,
) -> Result<(MultiplexedConnection, JoinSet<()>), RedisError> {
    let stream = socket(config).await?;
    // No time limits of the library: the client and the supervisor have theirs.
    let mut options = AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(1024);
    if info.protocol() == ProtocolVersion::RESP3 {
        options = options.set_push_sender(move |push| {
            pushed(push);
            Ok::<(), std::convert::Infallible>(())
        });
    }
    let (connection, driver) =
        MultiplexedConnection::new_with_config(info, stream, options).await?;
    let mut tasks = JoinSet::new();
    tasks.spawn(driver);
    Ok((connection, tasks))
}

async fn speak(
    config: &RedisStoreBuilder,
    subscriptions: Option<&Arc<Subscriptions>>,
    protocol: ProtocolVersion,
) -> Result<Opened, RedisError> {
    let mut info = info(config, protocol);
    if subscriptions.is_none() {
        info = info.set_skip_set_lib_name();
    }
    let receiver = subscriptions.cloned();
    let pushed = move |push| {
        if let Some(receiver) = &receiver {
            deliver(receiver, Msg::from_push_info(push));
        }
    };
    let (connection, tasks) = log_in(config, &info, pushed).await?;
    let mut opened = Opened {
        connection,
        second: None,
        volatile: false,
        epoch: 0,
        clustered: false,
        tasks,
    };
    let Some(subscriptions) = subscriptions else {
        return Ok(opened);
    };
    if protocol == ProtocolVersion::RESP2 {
        let stream = socket(config).await?;
        let (second, mut messages) = PubSub::new(&info, stream).await?.split();
        let subscriptions = Arc::clone(subscriptions);
        opened.tasks.spawn(async move {
            while let Some(message) = messages.next().await {
                deliver(&subscriptions, Some(message));
            }
        });
        opened.second = Some(second);
    }
    opened
        .subscribe(std::slice::from_ref(&subscriptions.channel))
        .await?;
    opened.subscribe_allowed(&subscriptions.take_all()).await?;
    opened.read_server_info().await;
    Ok(opened)
}

pub(crate) fn deliver(subscriptions: &Subscriptions, message: Option<Msg>) {
    if let Some(message) = message {
        subscriptions.message(
            message.get_channel_name().as_bytes(),
            message.get_payload_bytes(),
        );
    }
}
