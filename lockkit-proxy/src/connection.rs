//! One connection through the proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use lockkit_core::clock::{BootClock, Clock, Moment};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc, watch};

use crate::delay_queue::Chunk;
use crate::state::{Direction, Dropped, Fate, Faults, Flow, Shared};

/// What a connection knows of itself.
pub(super) struct Connection {
    faults: watch::Receiver<Faults>,
    shared: Arc<Shared>,
    generation: u64,
    /// What happens to its replies: one of the constants below.
    replies: AtomicU8,
    /// Whether the client has spoken last.
    asked: AtomicBool,
    /// The server has replied.
    replied: Notify,
}

const PASS: u8 = 0;
const SILENCED: u8 = 1;
const RESET: u8 = 2;

/// How a client of HTTP/2 says that a ping of the server has arrived.
const PING_ACK: [u8; 9] = [0, 0, 8, 6, 1, 0, 0, 0, 0];

/// The connection is to be reset on both sides.
struct Reset;

impl From<std::io::Error> for Reset {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl Connection {
    pub(super) fn new(faults: watch::Receiver<Faults>, shared: Arc<Shared>) -> Self {
        let generation = faults.borrow().generation;
        Self {
            faults,
            shared,
            generation,
            replies: AtomicU8::new(PASS),
            asked: AtomicBool::new(false),
            replied: Notify::new(),
        }
    }

    /// Carries bytes until both sides have ended or the connection is reset.
    pub(super) async fn run(self, mut client: TcpStream, server: SocketAddr) {
        let Ok(mut upstream) = TcpStream::connect(server).await else {
            return reset_on_drop(&client);
        };
        // Without this, small packets would wait for acknowledgements and distort the delays.
        let quick = client.set_nodelay(true).and(upstream.set_nodelay(true));
        let broken = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = upstream.split();
            let (requests, to_write) = mpsc::unbounded_channel();
            let (replies, to_reply) = mpsc::unbounded_channel();
            let answers = replies.clone();
            tokio::select! {
                ended = async {
                    tokio::try_join!(
                        self.read(Direction::Request, from_client, requests, Some(answers)),
                        self.read(Direction::Reply, from_server, replies, None),
                        write(to_write, to_server),
                        write(to_reply, to_client),
                    )
                } => ended.is_err(),
                () = self.killed() => true,
            }
        };
        if broken || quick.is_err() {
            reset_on_drop(&client);
            reset_on_drop(&upstream);
        }
    }

    async fn killed(&self) {
        let mut faults = self.faults.clone();
        // An error means that the proxy is gone, and its connections with it.
        drop(faults.wait_for(|faults| self.is_cut(faults)).await);
    }

    fn is_cut(&self, faults: &Faults) -> bool {
        faults.generation != self.generation
    }

    /// Carries the bytes of a direction to its writer, and answers of a judge to that of replies.
    async fn read(
        &self,
        direction: Direction,
        mut from: ReadHalf<'_>,
        to: mpsc::UnboundedSender<Chunk>,
        answers: Option<mpsc::UnboundedSender<Chunk>>,
    ) -> Result<(), Reset> {
        let mut faults = self.faults.clone();
        let mut buffer = vec![0; 64 * 1024];
        let mut last = Moment::from_nanos(0);
        let mut dead = false;
        loop {
            let length = from.read(&mut buffer).await?;
            let flow = passable(&mut faults, direction).await?;
            if self.is_cut(&faults.borrow()) {
                return Err(Reset);
            }
            dead |= flow == Flow::Discard;
            let bytes = &buffer[..length];
            if let Some(answers) = answers.as_ref().filter(|_| !dead && length > 0)
                && let Some(answer) = self.answer(bytes).await?
            {
                // The writer may have ended with the other side of the connection.
                drop(answers.send(Some(answer)));
                continue;
            }
            if !dead && !bytes.is_empty() {
                dead = self.reply_is_lost(direction, bytes)?;
            }
            if !dead {
                // A delay that was shortened must not let later bytes overtake earlier ones.
                let delay = faults.borrow().delay[direction as usize];
                last = last.max(BootClock::default().now() + delay);
                self.shared.bytes[direction as usize].fetch_add(length as u64, Ordering::Relaxed);
                if length > 0 && !is_ping_ack(bytes) {
                    self.count_trip(direction);
                }
                let chunk = (length > 0).then(|| bytes.to_vec());
                self.deliver(delay, last, chunk, &to);
            }
            if length == 0 {
                return if dead { silent(&to).await } else { Ok(()) };
            }
        }
    }

    fn count_trip(&self, direction: Direction) {
        let asks = direction == Direction::Request;
        if !self.asked.swap(asks, Ordering::SeqCst) && asks {
            self.shared.round_trips.fetch_add(1, Ordering::Relaxed);
        }
        if !asks {
            self.replied.notify_one();
        }
    }

    fn deliver(
        &self,
        delay: Duration,
        due: Moment,
        chunk: Chunk,
        to: &mpsc::UnboundedSender<Chunk>,
    ) {
        if delay.is_zero() && due <= BootClock::default().now() {
            // The writer may have ended with the other side of the connection.
            drop(to.send(chunk));
        } else {
            self.shared.delayed.send_at(due, chunk, to.clone());
        }
    }

    /// Lets the judge decide about a request. Returns the reply if it does not reach the server.
    async fn answer(&self, request: &[u8]) -> Result<Option<Vec<u8>>, Reset> {
        let fate = self.shared.fate(request);
        // After the replies to what was asked before, which are not meant.
        while fate != Fate::Pass && self.asked.load(Ordering::SeqCst) {
            self.replied.notified().await;
        }
        match fate {
            Fate::Pass => Ok(None),
            Fate::Answer(reply) => Ok(Some(reply)),
            Fate::Cut => Err(Reset),
            Fate::Drop(how) => {
                self.mark(how);
                Ok(None)
            }
        }
    }

    fn mark(&self, how: Dropped) {
        let mark = match how {
            Dropped::Silence => SILENCED,
            Dropped::Reset => RESET,
        };
        self.replies.store(mark, Ordering::SeqCst);
    }

    /// Marks requests whose reply is to be dropped, and drops replies of marked connections.
    fn reply_is_lost(&self, direction: Direction, bytes: &[u8]) -> Result<bool, Reset> {
        match direction {
            Direction::Request => {
                if let Some(how) = self.shared.reply_dropped(bytes) {
                    self.mark(how);
                }
                Ok(false)
            }
            Direction::Reply => {
                let mark = self.replies.load(Ordering::SeqCst);
                if mark != PASS {
                    self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                }
                if mark == RESET {
                    Err(Reset)
                } else {
                    Ok(mark == SILENCED)
                }
            }
        }
    }
}

/// Whether they acknowledge pings and ask for nothing. gRPC servers send one with a request, to measure the way.
fn is_ping_ack(bytes: &[u8]) -> bool {
    bytes
        .chunks(PING_ACK.len() + 8)
        .all(|frame| frame.starts_with(&PING_ACK))
}

/// Waits while the direction is held.
async fn passable(
    faults: &mut watch::Receiver<Faults>,
    direction: Direction,
) -> Result<Flow, Reset> {
    let open = faults
        .wait_for(|faults| faults.flow[direction as usize] != Flow::Hold)
        .await;
    match open {
        Ok(faults) => Ok(faults.flow[direction as usize]),
        Err(_) => Err(Reset),
    }
}

/// A direction that lost bytes does not tell its end either, until the other side gives up.
async fn silent(to: &mpsc::UnboundedSender<Chunk>) -> Result<(), Reset> {
    to.closed().await;
    Ok(())
}

async fn write(
    mut chunks: mpsc::UnboundedReceiver<Chunk>,
    mut to: WriteHalf<'_>,
) -> Result<(), Reset> {
    while let Some(chunk) = chunks.recv().await {
        let Some(bytes) = chunk else { break };
        to.write_all(&bytes).await?;
    }
    to.shutdown().await?;
    Ok(())
}

pub(super) fn reset_on_drop(stream: &TcpStream) {
    // The socket is about to be closed; if it cannot linger it closes in the ordinary way.
    drop(SockRef::from(stream).set_linger(Some(Duration::ZERO)));
}
