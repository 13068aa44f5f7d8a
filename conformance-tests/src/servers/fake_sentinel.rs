//! Sentinels that are not real, and name what a test wants.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkit_core::store::lock;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::failure::{Failure, Outcome};
use crate::task::{Task, spawn};

/// Answers the questions of a client as a Sentinel would that always sees the same.
#[derive(Debug)]
pub struct FakeSentinel {
    port: u16,
    replies: Arc<Mutex<Replies>>,
    _task: Task<()>,
}

impl FakeSentinel {
    /// One that names this master of this epoch, after a pause.
    ///
    /// # Errors
    /// - [`Failure`] if there is no port for it.
    pub async fn naming(master: SocketAddr, epoch: u32, pause: Duration) -> Outcome<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let replies = Arc::new(Mutex::new(Replies::new(master, epoch)));
        let shared = Arc::clone(&replies);
        let task = spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let replies = Arc::clone(&shared);
                connections.spawn(async move { serve(socket, &replies, pause).await });
            }
        });
        Ok(Self {
            port,
            replies,
            _task: task,
        })
    }

    /// Names another master from now on.
    pub fn name(&self, master: SocketAddr, epoch: u32) {
        *lock(&self.replies) = Replies::new(master, epoch);
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

#[derive(Debug)]
struct Replies {
    state: String,
    address: String,
}

impl Replies {
    fn new(master: SocketAddr, epoch: u32) -> Self {
        let bulk = |text: String| format!("${}\r\n{text}\r\n", text.len());
        let pair = |one, other| format!("*2\r\n{}{}", bulk(one), bulk(other));
        Self {
            state: pair("config-epoch".to_owned(), epoch.to_string()),
            address: pair(master.ip().to_string(), master.port().to_string()),
        }
    }
}

async fn serve(socket: TcpStream, replies: &Mutex<Replies>, pause: Duration) -> Outcome {
    let mut lines = BufReader::new(socket);
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).await? == 0 {
            return Err(Failure::new("the client has gone"));
        }
        let reply = match line.trim_end() {
            "MASTER" => lock(replies).state.clone(),
            "GET-MASTER-ADDR-BY-NAME" => lock(replies).address.clone(),
            _ => continue,
        };
        sleep(pause).await;
        lines.get_mut().write_all(reply.as_bytes()).await?;
    }
}
