//! What a proxy and its connections share: the faults, and the counts of what went through.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::delay_queue::DelayQueue;

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

/// Says whether the bytes of a request, as they came in one read, are the ones that are meant.
pub type RequestFilter = Box<dyn FnMut(&[u8]) -> bool + Send>;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It passes.
    Pass,
    /// It does not reach the server, and the client gets this reply.
    Answer(Vec<u8>),
    /// It does not reach the server, and the connection is reset.
    Cut,
    /// It reaches the server, and its reply is dropped.
    Drop(Dropped),
}

/// Decides what becomes of a request, from its bytes as they came in one read.
pub type RequestJudge = Box<dyn FnMut(&[u8]) -> Fate + Send>;

/// The state of the faults; connections watch it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// Where new connections go.
    pub(crate) server: SocketAddr,
    pub(crate) delay: [Duration; 2],
    pub(crate) flow: [Flow; 2],
    pub(crate) refuse: bool,
    /// Connections that were accepted under a smaller number are reset.
    pub(crate) generation: u64,
}

pub(crate) struct Shared {
    pub(crate) delayed: DelayQueue,
    pub(crate) connections: AtomicU64,
    pub(crate) bytes: [AtomicU64; 2],
    pub(crate) dropped: AtomicU64,
    pub(crate) round_trips: AtomicU64,
    pub(crate) drop_reply: Mutex<Option<(RequestFilter, Dropped)>>,
    pub(crate) judge: Mutex<Option<RequestJudge>>,
}

impl Shared {
    /// What becomes of this request.
    pub(crate) fn fate(&self, request: &[u8]) -> Fate {
        let mut judge = self.judge.lock().unwrap_or_else(PoisonError::into_inner);
        judge.as_mut().map_or(Fate::Pass, |judge| judge(request))
    }

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

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
