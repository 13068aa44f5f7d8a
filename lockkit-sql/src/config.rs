//! The options that every database has.

use std::time::Duration;

use lockkit_core::{Capabilities, PollRange, Queueing};

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

/// The options that every database has.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The table.
    pub table: Table,
    /// Whether a missing table is created.
    pub schema: Schema,
    /// How waiters learn of a free lock.
    pub wake: Wake,
    /// The pauses between two polls of a waiter, if they are not 1 ms and 1 s.
    pub poll: Option<PollRange>,
    /// The most connections for acquires and releases.
    pub connections: usize,
    /// The longest that connecting may take, and each request that opens the store.
    pub connect_timeout: Duration,
    /// Whether holds end with the session of their client.
    pub pin: bool,
    /// Whether connections prepare statements.
    pub prepare: bool,
    /// Whether a file gets a write-ahead log, unless its table is only checked.
    #[cfg(feature = "sqlite")]
    pub(crate) wal: bool,
    /// Whether a file may be on a network file system. SQLite only.
    pub allow_network_fs: bool,
}

impl Options {
    /// What a store with these options can do. A pinned hold is exclusive, and ends with its session.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let usual = PollRange::new(Duration::from_millis(1), Duration::from_secs(1));
        let poll = self.poll.unwrap_or(usual);
        Capabilities {
            queueing: Queueing::Fifo,
            poll,
            recheck: poll.max,
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
