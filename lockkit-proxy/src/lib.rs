//! A TCP proxy that breaks connections in every way a network does.
//!
//! ```no_run
//! # async fn example(server: std::net::SocketAddr) -> std::io::Result<()> {
//! use std::time::Duration;
//! use lockkit_proxy::{Direction, Flow, Proxy};
//!
//! let proxy = Proxy::start(server).await?;
//! proxy.delay(Direction::Request, Duration::from_millis(5));
//! proxy.flow(Direction::Reply, Flow::Hold); // replies wait until the repair
//! proxy.heal();
//! # Ok(())
//! # }
//! ```

mod connection;
mod postman;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use connection::Connection;
use postman::Postman;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Reply,
}

/// What happens to the bytes of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flow {
    /// They pass.
    Pass,
    /// They wait and pass after the repair, as after a cut that TCP survives.
    Hold,
    /// They vanish. A connection that lost bytes stays dead in that direction after the repair.
    Discard,
}

/// What happens to a connection whose reply is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dropped {
    /// The client hears nothing on this connection any more.
    Silence,
    /// The client's connection is reset when the reply arrives.
    Reset,
}

/// How much went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Bytes passed on to the server.
    pub request_bytes: u64,
    /// Bytes passed on to the client.
    pub reply_bytes: u64,
    /// Replies that were dropped on demand.
    pub dropped_replies: u64,
    /// Times that a connection passed on a request as its first word or after a reply. With one request
    /// at a time, and nothing that the server says unasked, these are round trips.
    pub round_trips: u64,
}

/// Says whether the bytes of a request, as they came in one read, are the ones that are meant.
pub type RequestFilter = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// The state of the faults; connections watch it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    pub(crate) delay: [Duration; 2],
    pub(crate) flow: [Flow; 2],
    pub(crate) refuse: bool,
    /// Connections that were accepted under a smaller number are reset.
    pub(crate) generation: u64,
}

pub(crate) struct Shared {
    postman: Postman,
    pub(crate) connections: AtomicU64,
    pub(crate) bytes: [AtomicU64; 2],
    pub(crate) dropped: AtomicU64,
    pub(crate) round_trips: AtomicU64,
    pub(crate) drop_reply: Mutex<Option<(RequestFilter, Dropped)>>,
}

impl Shared {
    /// Whether the reply to this request is to be dropped. Each order is carried out once.
    pub(crate) fn reply_dropped(&self, request: &[u8]) -> Option<Dropped> {
        let mut order = self
            .drop_reply
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if order.as_mut().is_some_and(|(wanted, _)| wanted(request)) {
            return order.take().map(|(_, how)| how);
        }
        None
    }
}

/// A proxy on a free port of the loopback address. Dropping it closes all its connections.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    faults: watch::Sender<Faults>,
    shared: Arc<Shared>,
    _reserved: Socket,
    _tasks: JoinSet<()>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts to accept connections for `server`, inside a Tokio runtime.
    ///
    /// # Errors
    /// - [`io::Error`] if no port or thread is to be had.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let reserved = reuse(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let addr = reserved
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::other("the loopback address has no port"))?;
        let listener = listen(addr)?;
        let (faults, seen) = watch::channel(Faults {
            delay: [Duration::ZERO; 2],
            flow: [Flow::Pass; 2],
            refuse: false,
            generation: 0,
        });
        let shared = Arc::new(Shared {
            postman: Postman::start()?,
            connections: AtomicU64::new(0),
            bytes: [AtomicU64::new(0), AtomicU64::new(0)],
            dropped: AtomicU64::new(0),
            round_trips: AtomicU64::new(0),
            drop_reply: Mutex::new(None),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, addr, server, seen, Arc::clone(&shared)));
        // One turn, so that the caller's first connection finds the loop running.
        tokio::task::yield_now().await;
        Ok(Self {
            addr,
            faults,
            shared,
            _reserved: reserved,
            _tasks: tasks,
        })
    }

    /// Where clients connect to.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Delays every byte of a direction that arrives from now on.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.faults
            .send_modify(|faults| faults.delay[direction as usize] = delay);
    }

    /// Delays every byte by so much on its way there, and on its way back.
    pub fn delay_both(&self, delay: Duration) {
        self.faults.send_modify(|faults| faults.delay = [delay; 2]);
    }

    /// Says what happens to the bytes of a direction, also on open connections.
    pub fn flow(&self, direction: Direction, flow: Flow) {
        self.faults
            .send_modify(|faults| faults.flow[direction as usize] = flow);
    }

    /// Resets every open connection: both sides see a `RST`, and bytes that are held or come from now
    /// on get no further.
    pub fn reset(&self) {
        self.faults.send_modify(|faults| faults.generation += 1);
    }

    /// Refuses new connections from now on, as a port does on which nobody listens; or accepts them
    /// again.
    pub fn refuse(&self, refuse: bool) {
        self.faults.send_modify(|faults| faults.refuse = refuse);
    }

    /// Lets the next request that `wanted` recognises reach the server, and drops its reply.
    ///
    /// `wanted` sees the requests of all connections as they come; a counter in it makes it the
    /// n-th. The order is carried out once.
    pub fn drop_reply(&self, dropped: Dropped, wanted: impl FnMut(&[u8]) -> bool + Send + 'static) {
        let order: (RequestFilter, Dropped) = (Box::new(wanted), dropped);
        *self
            .shared
            .drop_reply
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(order);
    }

    /// Ends delays, cuts, refusals and an order to drop a reply that was not carried out.
    pub fn heal(&self) {
        self.shared
            .drop_reply
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        self.faults.send_modify(|faults| {
            faults.delay = [Duration::ZERO; 2];
            faults.flow = [Flow::Pass; 2];
            faults.refuse = false;
        });
    }

    /// How much went through so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let bytes =
            |direction: Direction| self.shared.bytes[direction as usize].load(Ordering::Relaxed);
        Counts {
            connections: self.shared.connections.load(Ordering::Relaxed),
            request_bytes: bytes(Direction::Request),
            reply_bytes: bytes(Direction::Reply),
            dropped_replies: self.shared.dropped.load(Ordering::Relaxed),
            round_trips: self.shared.round_trips.load(Ordering::Relaxed),
        }
    }
}

/// A socket that is bound but does not listen, so that its port stays ours while connections to it
/// are refused.
fn reuse(addr: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    #[cfg(not(unix))]
    socket.set_reuse_address(true)?;
    socket.bind(&addr.into())?;
    Ok(socket)
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = reuse(addr)?;
    socket.listen(1024)?;
    TcpListener::from_std(socket.into())
}

async fn accept(
    first: TcpListener,
    addr: SocketAddr,
    server: SocketAddr,
    mut faults: watch::Receiver<Faults>,
    shared: Arc<Shared>,
) {
    let mut connections = JoinSet::new();
    let mut listener = Some(first);
    loop {
        if faults.borrow_and_update().refuse {
            listener = None;
        } else if listener.is_none() {
            // The port is reserved, so this fails only for want of memory or handles.
            listener = listen(addr).ok();
        }
        tokio::select! {
            accepted = next(listener.as_ref()) => {
                let Ok((client, _)) = accepted else { continue };
                if faults.borrow().refuse {
                    // It came while this had not heard of it.
                    connection::reset_on_drop(&client);
                    continue;
                }
                shared.connections.fetch_add(1, Ordering::Relaxed);
                let connection = Connection::new(faults.clone(), Arc::clone(&shared));
                connections.spawn(connection.run(client, server));
            }
            changed = faults.changed() => if changed.is_err() { return },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn next(listener: Option<&TcpListener>) -> io::Result<(tokio::net::TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}
