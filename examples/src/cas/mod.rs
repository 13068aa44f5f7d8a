#![doc = include_str!("../../cas-to-lock.md")]

pub mod chat_room;
pub mod crowd;
pub mod session;
pub mod stock;

use lockkit::LockClient;
use lockkit::redis::{Command, Fenced, FencedError};

use crate::Outcome;

/// A connection for data. With `WATCH` it must not be shared: what is watched belongs to the connection.
pub type Db = redis::aio::MultiplexedConnection;

/// One kind of update, written twice.
pub trait Case: Clone + Send + Sync + 'static {
    /// What it is about.
    const NAME: &'static str;
    /// How many commands the second way reads with, before it writes.
    const READS: u64;

    /// Puts the data into its first state.
    fn reset(&self, db: &mut Db) -> impl Future<Output = Outcome> + Send;

    /// Before: `WATCH`, look, `MULTI`, `EXEC`, and again if somebody was faster. Answers how often it
    /// had to begin again.
    fn watched(&self, db: &mut Db, turn: Turn) -> impl Future<Output = Outcome<u64>> + Send;

    /// After: look and write under a lock.
    fn locked(
        &self,
        db: &mut Db,
        locks: &LockClient,
        turn: Turn,
    ) -> impl Future<Output = Outcome> + Send;

    /// The data, in words that can be compared.
    fn state(&self, db: &mut Db) -> impl Future<Output = Outcome<Vec<String>>> + Send;
}

/// Who updates, and for which time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Turn {
    /// The contender.
    pub contender: usize,
    /// Its turns so far.
    pub number: u64,
}

/// Writes while the hold of `guard` stands, in one step of the server.
///
/// # Errors
/// - [`FencedError::Fenced`] if it does not stand any more; nothing was written.
async fn write(locks: &LockClient, guard: &lockkit::Guard, commands: &[Command]) -> Outcome {
    let fenced = Fenced::by(locks, guard).ok_or("the locks are not in this Redis server")?;
    let answers: Result<_, FencedError> = fenced.commands(commands).await;
    answers?;
    Ok(())
}
