//! A proxy that knows where a request and its reply begin and end, and lets one of them fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use conformance_tests::Outcome;
use conformance_tests::task::{Task, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex as Turn;

/// The numbers of requests that remove watches, which no step waits for, and that make nodes.
const REMOVE_WATCHES: i32 = 18;
const CREATE: i32 = 15;
/// The number of a late request, which the client has never used.
const AGAIN: i32 = i32::MAX - 1;

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It is not executed, and its reply has this code.
    Refused(i32),
    /// It is executed, and its reply has this code.
    Failed(i32),
    /// The connection is cut before it arrives.
    CutBefore,
    /// The connection is cut once it was executed.
    CutAfter,
    /// The connection is cut before it arrives; it is executed after the next create.
    Late,
}

/// What happens to a reply.
enum Doom {
    Code(i32),
    Cut,
    Swallowed,
}

#[derive(Default)]
struct Order {
    /// The number of requests that pass before it.
    skip: usize,
    fault: Option<Fault>,
    late: Option<Vec<u8>>,
}

/// The proxy. Dropping it ends its connections.
pub(crate) struct Wire {
    pub(crate) port: u16,
    order: Arc<Mutex<Order>>,
    _task: Task<()>,
}

impl Wire {
    pub(crate) async fn start(server: u16) -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let order: Arc<Mutex<Order>> = Arc::default();
        let shared = Arc::clone(&order);
        let task = spawn(async move {
            let mut connections = Vec::new();
            while let Ok((client, _)) = listener.accept().await {
                let order = Arc::clone(&shared);
                connections.push(spawn(async move {
                    drop(serve(client, server, &order).await);
                }));
            }
        });
        Ok(Self {
            port,
            order,
            _task: task,
        })
    }

    /// Lets the request fail before which `skip` others pass.
    pub(crate) fn fail(&self, skip: usize, fault: Fault) {
        let fault = Some(fault);
        let late = None;
        *self.order.lock().unwrap_or_else(PoisonError::into_inner) = Order { skip, fault, late };
    }

    /// Lets all requests pass again; whether one has failed, and nothing is late.
    pub(crate) fn heal(&self) -> bool {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order.fault.take().is_none() && order.late.is_none()
    }
}

fn judge(order: &Mutex<Order>, xid: i32, kind: i32) -> Option<Fault> {
    let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
    if xid <= 0 || kind == REMOVE_WATCHES || order.fault.is_none() {
        return None;
    }
    if order.skip > 0 {
        order.skip -= 1;
        return None;
    }
    order.fault.take()
}

async fn serve(client: TcpStream, server: u16, order: &Mutex<Order>) -> Outcome {
    client.set_nodelay(true)?;
    let server = TcpStream::connect(("127.0.0.1", server)).await?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let (to_client, dooms) = (Turn::new(to_client), Mutex::new(HashMap::new()));
    tokio::select! {
        end = requests(from_client, to_server, &to_client, &dooms, order) => end,
        end = replies(from_server, &to_client, &dooms) => end,
    }
}

async fn requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    back: &Turn<OwnedWriteHalf>,
    dooms: &Mutex<HashMap<i32, Doom>>,
    order: &Mutex<Order>,
) -> Outcome {
    // The first one asks for the session.
    to.write_all(&frame(&mut from).await?).await?;
    let doom = |xid, doom| {
        let mut dooms = dooms.lock().unwrap_or_else(PoisonError::into_inner);
        dooms.insert(xid, doom);
    };
    loop {
        let request = frame(&mut from).await?;
        let (xid, kind) = (number(&request, 4), number(&request, 8));
        match judge(order, xid, kind) {
            None => {}
            Some(Fault::Refused(code)) => {
                let mut reply = [0; 20];
                reply[3] = 16;
                reply[4..8].copy_from_slice(&xid.to_be_bytes());
                reply[16..].copy_from_slice(&code.to_be_bytes());
                back.lock().await.write_all(&reply).await?;
                continue;
            }
            Some(Fault::Failed(code)) => doom(xid, Doom::Code(code)),
            Some(Fault::CutBefore) => return Ok(()),
            Some(Fault::CutAfter) => doom(xid, Doom::Cut),
            Some(Fault::Late) => {
                let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
                order.late = Some(request);
                return Ok(());
            }
        }
        to.write_all(&request).await?;
        let late = (kind == CREATE).then(|| {
            let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
            order.late.take()
        });
        if let Some(mut late) = late.flatten() {
            late[4..8].copy_from_slice(&AGAIN.to_be_bytes());
            doom(AGAIN, Doom::Swallowed);
            to.write_all(&late).await?;
        }
    }
}

async fn replies(
    mut from: OwnedReadHalf,
    to: &Turn<OwnedWriteHalf>,
    dooms: &Mutex<HashMap<i32, Doom>>,
) -> Outcome {
    let first = frame(&mut from).await?;
    to.lock().await.write_all(&first).await?;
    loop {
        let mut reply = frame(&mut from).await?;
        let xid = number(&reply, 4);
        let doom = {
            let mut dooms = dooms.lock().unwrap_or_else(PoisonError::into_inner);
            dooms.remove(&xid)
        };
        match doom {
            None => {}
            Some(Doom::Cut) => return Ok(()),
            Some(Doom::Swallowed) => continue,
            Some(Doom::Code(code)) => {
                reply.truncate(20);
                reply[..4].copy_from_slice(&16_i32.to_be_bytes());
                reply[16..].copy_from_slice(&code.to_be_bytes());
            }
        }
        to.lock().await.write_all(&reply).await?;
    }
}

/// A whole request or reply with its length.
async fn frame(from: &mut OwnedReadHalf) -> Outcome<Vec<u8>> {
    let length = from.read_u32().await?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.resize(4 + usize::try_from(length)?, 0);
    from.read_exact(&mut frame[4..]).await?;
    Ok(frame)
}

fn number(frame: &[u8], at: usize) -> i32 {
    let bytes = frame
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, i32::from_be_bytes)
}
