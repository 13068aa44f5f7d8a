#![doc = include_str!("../../cas-to-lock.md")]

pub mod chat_room;
pub mod crowd;
pub mod session;
pub mod stock;

use lockkit::LockClient;

use crate::Outcome;

/// A connection for data. With `WATCH` it must not be shared: what is watched belongs to the connection.
pub type Db = redis::aio::MultiplexedConnection;

/// One kind of update, written twice.
pub trait Case: Clone + Send + Sync + 'static {
    /// Its name in tables.
    const NAME: &'static str;

    /// Puts the data into its first state.
    fn reset(&self, db: &mut Db) -> impl Future<Output = Outcome> + Send;

    /// Before: `WATCH`, read, `MULTI`, `EXEC`, repeated if another client was faster. Returns the number of
    /// retries.
    fn watched(&self, db: &mut Db, turn: Turn) -> impl Future<Output = Outcome<u64>> + Send;

    /// After: a section, which reads with the grant of a lock and writes with its release.
    fn locked(&self, locks: &LockClient, turn: Turn) -> impl Future<Output = Outcome> + Send;

    /// The data, in words that can be compared.
    fn state(&self, db: &mut Db) -> impl Future<Output = Outcome<Vec<String>>> + Send;
}

/// Which contender updates, and which of its updates it is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Turn {
    /// The contender.
    pub contender: usize,
    /// Its turns so far.
    pub number: u64,
}
