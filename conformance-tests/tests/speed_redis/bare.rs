//! The least that a lock on a Redis server can do: no lease, no token, nothing that survives a crash.

use conformance_tests::servers::RedisServer;
use conformance_tests::{Failure, Outcome};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Script, Value};
use tokio::sync::mpsc;

use conformance_tests::contention::Contender;

/// One element on a list: who pops it has it.
pub(crate) struct Pop(MultiplexedConnection);

impl Pop {
    pub(crate) async fn connect(port: u16) -> Outcome<Self> {
        let client = Client::open(("127.0.0.1", port))?;
        // It may wait for as long as it takes.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        Ok(Self(connection.await?))
    }

    /// Puts the element there.
    pub(crate) async fn ready(server: &RedisServer) -> Outcome {
        Ok(server.run(&["LPUSH", "bare", "x"]).await?)
    }
}

impl Contender for Pop {
    async fn turn(&mut self) -> Outcome {
        let pop = redis::cmd("BLPOP").arg(&["bare", "0"]).to_owned();
        let _: Value = pop.query_async(&mut self.0).await?;
        let push = redis::cmd("LPUSH").arg(&["bare", "x"]).to_owned();
        Ok(push.query_async(&mut self.0).await?)
    }
}

const TAKE: &str = "
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('SET', KEYS[1], ARGV[1]) return 1 end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0";
const GIVE: &str = "
local next = redis.call('LPOP', KEYS[2])
if not next then redis.call('DEL', KEYS[1]) return 0 end
redis.call('SET', KEYS[1], next)
redis.call('PUBLISH', next, '')
return 1";

/// A list of channels: a release passes the lock to the first and publishes there.
pub(crate) struct List {
    connection: MultiplexedConnection,
    pushes: mpsc::UnboundedReceiver<redis::PushInfo>,
    channel: String,
    take: Script,
    give: Script,
}

impl List {
    pub(crate) async fn connect(port: u16, number: usize) -> Outcome<Self> {
        let info = format!("redis://127.0.0.1:{port}/?protocol=resp3");
        let (tell, pushes) = mpsc::unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(tell);
        let client = Client::open(info)?;
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connection.await?;
        let channel = format!("bare:{number}");
        connection.subscribe(&channel).await?;
        Ok(Self {
            connection,
            pushes,
            channel,
            take: Script::new(TAKE),
            give: Script::new(GIVE),
        })
    }
}

impl List {
    /// Waits until it is passed on to this one.
    async fn told(&mut self) -> Outcome {
        while let Some(push) = self.pushes.recv().await {
            if push.kind == redis::PushKind::Message {
                return Ok(());
            }
        }
        Err(Failure::new("the connection ended"))
    }
}

impl Contender for List {
    async fn turn(&mut self) -> Outcome {
        let mut take = self.take.key("bare");
        let take = take.key("bare:list").arg(&self.channel);
        let taken: bool = take.invoke_async(&mut self.connection).await?;
        if !taken {
            self.told().await?;
        }
        let mut give = self.give.key("bare");
        let give = give.key("bare:list");
        Ok(give.invoke_async(&mut self.connection).await?)
    }
}
