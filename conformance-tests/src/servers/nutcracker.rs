//! A real proxy of Redis, which lets few commands pass.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{ServerCommand, ServerProcess, free_port};
use crate::failure::Outcome;
use crate::foreign::program;

/// Nutcracker, also called twemproxy, in front of one server.
///
/// It closes the connection of a client that subscribes, publishes, loads a script, asks for the time
/// or the server's settings, begins a transaction or chooses a database.
#[derive(Debug)]
pub struct Nutcracker {
    process: ServerProcess,
    addr: SocketAddr,
}

impl Nutcracker {
    /// What the system calls it.
    pub const PROGRAM: &'static str = "nutcracker";

    /// Starts it in front of the server on this port, below this program itself, whose `main` calls
    /// [`guardian::serve`](super::guardian::serve) first.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if it cannot be started.
    pub async fn start(server: u16) -> Outcome<Self> {
        let (port, statistics) = (free_port()?, free_port()?);
        let data = TempDir::new()?;
        let pool = format!(
            "locks:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: fnv1a_64\n  \
             distribution: ketama\n  servers:\n   - 127.0.0.1:{server}:1\n"
        );
        let file = data.path().join("pool.yml");
        std::fs::write(&file, pool)?;
        let program = program(Self::PROGRAM).unwrap_or_else(|| Self::PROGRAM.into());
        // Without a log of its own it would write to the system's.
        let log = data.path().join("proxy.log");
        let pid = data.path().join("pid");
        let statistics = statistics.to_string();
        let words: [(&str, OsString); 5] = [
            ("-c", file.into()),
            ("-o", log.into()),
            ("-p", pid.into()),
            ("-a", "127.0.0.1".into()),
            ("-s", statistics.into()),
        ];
        let words = words.map(|(option, value)| [option.into(), value]);
        let process = ServerCommand::new(std::env::current_exe()?, program)
            .args(words.into_iter().flatten())
            .data(data)
            .start()?;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let proxy = Self { process, addr };
        proxy.process.ready(|| ping(addr)).await?;
        Ok(proxy)
    }

    /// Where it listens.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }
}

async fn ping(addr: SocketAddr) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(addr).await?;
    socket.write_all(b"*1\r\n$4\r\nPING\r\n").await?;
    let mut answer = [0; 7];
    socket.read_exact(&mut answer).await.map(drop)
}
