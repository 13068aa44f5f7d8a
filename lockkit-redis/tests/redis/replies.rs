//! A way to the server that can end anywhere, and on which requests can be answered by somebody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Passes,
    /// It does not reach the server; this line is the reply.
    Refused(&'static str),
    /// The server carries it out; this line is the reply.
    Answered(&'static str),
    /// The connection ends before it reaches the server.
    CutBefore,
    /// The connection ends after the server has carried it out.
    CutAfter,
    /// The connection ends after its reply.
    Last,
}

/// Passes connections on to a server. Dropping it closes them.
pub(crate) struct Way {
    pub(crate) port: u16,
    /// Where new connections lead.
    pub(crate) server: Arc<AtomicU16>,
    pub(crate) connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Way {
    pub(crate) async fn to(server: u16) -> Self {
        Self::with(server, |_| Fate::Passes).await
    }

    /// `decide` sees each request as its bytes came in one read.
    pub(crate) async fn with(
        server: u16,
        decide: impl Fn(&[u8]) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Arc::new(AtomicU16::new(server));
        let connections = Arc::new(AtomicUsize::new(0));
        let (to, count) = (Arc::clone(&server), Arc::clone(&connections));
        let decide = Arc::new(decide);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let port = to.load(Ordering::Relaxed);
                let decide = Arc::clone(&decide);
                open.spawn(async move {
                    let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    pass(client, server, &*decide).await;
                });
            }
        });
        Self {
            port,
            server,
            connections,
            _tasks: tasks,
        }
    }
}

/// Ends when one of the two ends, or where a request is to be the last.
async fn pass(
    mut client: TcpStream,
    mut server: TcpStream,
    decide: &(dyn Fn(&[u8]) -> Fate + Sync),
) {
    let (mut request, mut reply) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        let (count, is_request) = tokio::select! {
            count = client.read(&mut request) => (count.unwrap_or(0), true),
            count = server.read(&mut reply) => (count.unwrap_or(0), false),
        };
        if count == 0 {
            return;
        }
        if !is_request {
            if client.write_all(&reply[..count]).await.is_err() {
                return;
            }
            continue;
        }
        let fate = decide(&request[..count]);
        if matches!(fate, Fate::CutBefore) {
            return;
        }
        if let Fate::Refused(line) = fate {
            client.write_all(line.as_bytes()).await.ok();
            continue;
        }
        if server.write_all(&request[..count]).await.is_err() {
            return;
        }
        if matches!(fate, Fate::Passes) {
            continue;
        }
        let Ok(count @ 1..) = server.read(&mut reply).await else {
            return;
        };
        match fate {
            Fate::Answered(line) => client.write_all(line.as_bytes()).await.ok(),
            Fate::Last => {
                client.write_all(&reply[..count]).await.ok();
                return;
            }
            _ => return,
        };
    }
}
