//! The proxy: its port, its faults, and the loop that accepts connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::{self, Connection};
use crate::delay_queue::DelayQueue;
use crate::state::{Direction, Dropped, Fate, Faults, Flow, RequestFilter, RequestJudge, Shared};

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
    /// at a time, and nothing that the server says unasked, these are round trips. The acknowledgement of a
    /// ping of HTTP/2 is no request.
    pub round_trips: u64,
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

impl Proxy {
    /// Starts to accept connections for `server`, inside a Tokio runtime.
    ///
    /// # Errors
    /// - [`io::Error`] if the system gives no port or no thread.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let reserved = reuse(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let addr = reserved
            .local_addr()?
            .as_socket()
            .ok_or_else(|| io::Error::other("the loopback address has no port"))?;
        let listener = listen(addr)?;
        let (faults, seen) = watch::channel(Faults {
            server,
            delay: [Duration::ZERO; 2],
            flow: [Flow::Pass; 2],
            refuse: false,
            generation: 0,
        });
        let shared = Arc::new(Shared {
            delayed: DelayQueue::start()?,
            connections: AtomicU64::new(0),
            bytes: [AtomicU64::new(0), AtomicU64::new(0)],
            dropped: AtomicU64::new(0),
            round_trips: AtomicU64::new(0),
            drop_reply: Mutex::new(None),
            judge: Mutex::new(None),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, addr, seen, Arc::clone(&shared)));
        // One turn of the runtime, so that the caller's first connection finds the loop running.
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

    /// Refuses new connections from now on, as a port without a listener does, or accepts them again.
    pub fn refuse(&self, refuse: bool) {
        self.faults.send_modify(|faults| faults.refuse = refuse);
    }

    /// Leads new connections to another server, as a name does that has moved. Open ones stay where they are.
    pub fn lead_to(&self, server: SocketAddr) {
        self.faults.send_modify(|faults| faults.server = server);
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

    /// Lets `judge` decide what becomes of each request of all connections, until the repair.
    pub fn judge(&self, judge: impl FnMut(&[u8]) -> Fate + Send + 'static) {
        let judge: RequestJudge = Box::new(judge);
        self.set_judge(Some(judge));
    }

    fn set_judge(&self, judge: Option<RequestJudge>) {
        let place = self.shared.judge.lock();
        *place.unwrap_or_else(PoisonError::into_inner) = judge;
    }

    /// Ends delays, cuts, refusals, the work of a judge, and an order to drop a reply that was not carried out.
    pub fn heal(&self) {
        self.set_judge(None);
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
    mut faults: watch::Receiver<Faults>,
    shared: Arc<Shared>,
) {
    let mut connections = JoinSet::new();
    let mut listener = Some(first);
    loop {
        if faults.borrow_and_update().refuse {
            listener = None;
        } else if listener.is_none() {
            // The port is reserved, so this fails only without memory or handles.
            listener = listen(addr).ok();
        }
        tokio::select! {
            accepted = next(listener.as_ref()) => {
                let Ok((client, _)) = accepted else { continue };
                let Faults { server, refuse, .. } = *faults.borrow();
                if refuse {
                    // It came before this loop saw the refusal.
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
