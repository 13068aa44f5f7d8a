//! The options that every database has.

use std::time::Duration;

use lockkit_core::{Capabilities, PollRange, Queueing, Waiting};

use crate::table::Table;

/// The longest that a store waits for a connection, its session or the lock of a file, if nothing else is set. Less than
/// the client's timeout of a request, so that the caller gets the reason, and knows that nothing was requested.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1500);

/// What is done about the table when a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Schema {
    /// A missing table is created. One with other columns is refused.
    Create,
    /// A missing table is refused too: for users who may not create tables.
    Check,
}

/// How waiters learn of a free lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// The server notifies them, and they poll too. PostgreSQL only.
    Push,
    /// They poll.
    Poll,
}

/// The options of a store. Its builder says what each means.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) table: Table,
    pub(crate) schema: Schema,
    pub(crate) wake: Wake,
    /// The pauses between two polls of a waiter, if they are not 1 ms and 1 s.
    pub(crate) poll: Option<PollRange>,
    pub(crate) connections: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) pin: bool,
    pub(crate) prepare: bool,
    /// Whether a file gets a write-ahead log, unless its table is only checked.
    #[cfg(feature = "sqlite")]
    pub(crate) wal: bool,
    pub(crate) allow_network_fs: bool,
}

impl Options {
    /// What a store with these options can do. A pinned hold is exclusive, and ends with its session. `pushes`: whether
    /// the server can notify waiters.
    pub(crate) fn capabilities(&self, pushes: bool) -> Capabilities {
        let usual = PollRange::new(Duration::from_millis(1), Duration::from_secs(1));
        let poll = self.poll.unwrap_or(usual);
        let (waiting, recheck) = match pushes && self.wake == Wake::Push {
            // No notification says that a session has ended.
            true if self.poll.is_none() && !self.pin => {
                (Waiting::Push, Capabilities::new().recheck)
            }
            true => (Waiting::Push, poll.max),
            false => (Waiting::Poll, poll.max),
        };
        Capabilities {
            queueing: Queueing::Fifo,
            waiting,
            poll,
            recheck,
            tells_loss: self.pin,
            shares: !self.pin,
            notes: true,
            adopts: !self.pin,
            ..Capabilities::new()
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            table: Table::default(),
            schema: Schema::Create,
            wake: Wake::Push,
            poll: None,
            connections: 8,
            connect_timeout: PATIENCE,
            pin: false,
            prepare: true,
            #[cfg(feature = "sqlite")]
            wal: false,
            allow_network_fs: false,
        }
    }
}
