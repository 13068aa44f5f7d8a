//! Sockets: TCP, Unix, TLS.

use std::io;
use std::pin::Pin;

use redis::aio::AsyncStream;
use tokio::net::TcpStream;

use crate::config::{Address, RedisStoreBuilder};

/// A connection to the server, of any kind.
pub(crate) type Stream = Pin<Box<dyn AsyncStream + Send + Sync>>;

/// Opens a socket to the server.
pub(crate) async fn open(config: &RedisStoreBuilder) -> io::Result<Stream> {
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
