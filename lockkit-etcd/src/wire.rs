//! The way to a server, on which what is written at the same time leaves in one piece.
//!
//! A request of gRPC is two frames. The second is made only when the first has been given to the
//! connection, which would send it at once: two calls of the kernel, and a server that wakes up twice.
//! Here whatever wants to be sent waits until the other tasks that are ready have had their turn.

use std::fmt;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, BufWriter, ReadBuf};
use tokio::task::yield_now;
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt as _;

/// So many bytes are kept at most before they are sent.
const MOST: usize = 16 << 10;

/// A channel to one server. Nothing is sent before the first request.
pub(crate) fn channel(endpoint: &Endpoint) -> Channel {
    let mut connector = HttpConnector::new();
    // What it connects for may be `https`; TLS comes on top.
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let connector = connector.map_response(|io| TokioIo::new(Gathered::new(io.into_inner())));
    endpoint.connect_with_connector_lazy(connector)
}

/// Gathers what is written until it is flushed and the tasks that were ready then have run.
struct Gathered<T> {
    stream: BufWriter<T>,
    /// The turn of the other tasks, once something is to be flushed.
    turn: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<T: AsyncWrite> Gathered<T> {
    fn new(stream: T) -> Self {
        Self {
            stream: BufWriter::with_capacity(MOST, stream),
            turn: None,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gathered<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if !self.stream.buffer().is_empty() {
            let turn = self.turn.get_or_insert_with(|| Box::pin(yield_now()));
            ready!(turn.as_mut().poll(context));
            self.turn = None;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gathered<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T> fmt::Debug for Gathered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathered").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Takes a few bytes at a time, and notes each piece.
    struct Pieces(Vec<Vec<u8>>, usize);

    impl AsyncWrite for Pieces {
        fn poll_write(
            self: Pin<&mut Self>,
            _context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<Result<usize>> {
            let this = self.get_mut();
            let piece = bytes.get(..this.1).unwrap_or(bytes);
            this.0.push(piece.to_vec());
            Poll::Ready(Ok(piece.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_ready_tasks_write_leaves_in_one_piece() {
        let mut way = Gathered::new(Pieces(Vec::new(), usize::MAX));
        for turn in 1..=2 {
            way.write_all(b"head").await.unwrap();
            let flushed = poll_fn(|context| Poll::Ready(Pin::new(&mut way).poll_flush(context)));
            assert!(flushed.await.is_pending(), "it is the others' turn");
            way.write_all(b"data").await.unwrap();
            way.flush().await.unwrap();
            assert_eq!(way.stream.get_ref().0.len(), turn);
            assert_eq!(way.stream.get_ref().0.last().unwrap(), b"headdata");
        }
    }

    #[tokio::test]
    async fn nothing_is_lost_on_the_way() {
        let mut way = Gathered::new(Pieces(Vec::new(), 1000));
        let sent: Vec<u8> = (0..=255).cycle().take(3 * MOST).collect();
        for piece in sent.chunks(700) {
            way.write_all(piece).await.unwrap();
            let kept = way.stream.buffer().len();
            assert!(kept <= MOST + 700, "{kept} are kept");
        }
        way.shutdown().await.unwrap();
        assert_eq!(way.stream.get_ref().0.concat(), sent);
    }
}
