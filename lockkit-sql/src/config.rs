//! The options that every database has.

use std::time::Duration;

use lockkit_core::{Capabilities, PollRange};

use crate::schema::Schema;
use crate::table::Table;

/// How waiters learn of a free lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wake {
    /// The server tells them, and they look from time to time all the same. PostgreSQL only.
    Push,
    /// They look from time to time.
    Poll,
}

/// The options that every database has.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The table.
    pub table: Table,
    /// Whether the table is made, checked or trusted.
    pub schema: Schema,
    /// How waiters learn of a free lock.
    pub wake: Wake,
    /// The pauses of waiters between two looks.
    pub poll: PollRange,
    /// The most connections of a pool of its own for steps; renewals have one more.
    pub connections: usize,
    /// The longest that connecting may take.
    pub connect_timeout: Duration,
    /// Whether holds end with the session of their client.
    pub pin: bool,
    /// Whether sessions keep statements prepared.
    pub prepare: bool,
    /// Whether a file may be on a network file system. SQLite only.
    pub allow_network_fs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            table: Table::default(),
            schema: Schema::Create,
            wake: Wake::Push,
            poll: Capabilities::new().poll,
            connections: 8,
            connect_timeout: Duration::from_secs(2),
            pin: false,
            prepare: true,
            allow_network_fs: false,
        }
    }
}
