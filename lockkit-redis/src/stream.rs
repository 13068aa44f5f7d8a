//! Sockets: TCP, Unix, TLS.

use std::io;
use std::pin::Pin;

use lockkit_core::url::Tls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::config::{Address, RedisStoreBuilder};

/// A connection to the server, of any kind.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Sync {}
impl<S: AsyncRead + AsyncWrite + Send + Sync> Socket for S {}

pub(crate) type Stream = Pin<Box<dyn Socket>>;

/// Opens a socket to the server.
pub(crate) async fn open(config: &RedisStoreBuilder) -> io::Result<Stream> {
    match &config.address {
        Address::Tcp { host, port } => {
            let socket = TcpStream::connect((host.as_str(), *port)).await?;
            // Without this, Nagle's algorithm delays a request by up to a round trip.
            socket.set_nodelay(true)?;
            match &config.tls {
                Some(tls) => secure(tls, host, socket).await,
                None => Ok(Box::pin(socket)),
            }
        }
        #[cfg(unix)]
        Address::Unix(path) => Ok(Box::pin(tokio::net::UnixStream::connect(path).await?)),
        #[cfg(not(unix))]
        Address::Unix(_) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this system has no Unix sockets",
        )),
    }
}

#[cfg(feature = "tls")]
async fn secure(tls: &Tls, host: &str, socket: TcpStream) -> io::Result<Stream> {
    match crate::tls::wrap(tls, host, socket).await {
        Ok(stream) => Ok(Box::pin(stream)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(io::Error::other(
            "the server ended the TLS handshake: does this port speak TLS?",
        )),
        Err(error) => Err(error),
    }
}

#[cfg(not(feature = "tls"))]
#[expect(
    clippy::unused_async,
    reason = "it has the signature of the one with the feature"
)]
async fn secure(_: &Tls, _: &str, _: TcpStream) -> io::Result<Stream> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "`rediss:` needs the feature `tls` of the crate `lockkit-redis`",
    ))
}
