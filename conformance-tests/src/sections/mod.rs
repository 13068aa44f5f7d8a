//! Sections of each store that has them, alike: each reads two values, and writes both and an entry.

mod etcd;
mod redis;
mod sql;
mod zk;

use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::{Lock, Outcome as Told};

use crate::checker::{Entry, StoredSections};
use crate::failure::{Failure, Outcome};

/// The sections of a lock.
#[async_trait]
pub(crate) trait Sections: Send + Sync {
    /// Makes what the first section needs.
    ///
    /// # Errors
    /// - [`Failure`] of the store.
    async fn prepare(&self) -> Outcome {
        Ok(())
    }

    /// Takes the lock and returns both values.
    ///
    /// # Errors
    /// - [`Failure`] of the store; nothing is held any more.
    async fn enter(&self) -> Outcome<(Box<dyn Entered>, [String; 2])>;

    /// Takes the lock and reads all that is there.
    ///
    /// # Errors
    /// - [`Failure`] of the store.
    async fn stored(&self) -> Outcome<StoredSections>;
}

/// A section that holds its lock.
#[async_trait]
pub(crate) trait Entered: Send {
    /// The token of its hold.
    fn token(&self) -> u64;

    /// Writes and releases the lock in one step.
    async fn commit(self: Box<Self>, entry: &Entry) -> Written;
}

/// What is known of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It was carried out.
    Yes,
    /// It was not carried out, and why.
    No(String),
    /// It may have been carried out.
    Unknown,
}

impl Written {
    /// Of a commit that failed in the store.
    fn failed(error: &lockkit_core::BackendError) -> Self {
        match error.outcome() {
            Told::Indeterminate => Self::Unknown,
            _ => Self::No(error.to_string()),
        }
    }
}

/// The sections of a lock in the store at `url`.
///
/// # Errors
/// - [`Failure`] if the store has no sections, or the URL is wrong.
pub(crate) fn open(url: &str, lock: Lock) -> Outcome<Arc<dyn Sections>> {
    let scheme = url.split(':').next().unwrap_or_default();
    Ok(match scheme.split('+').next() {
        Some("redis") => Arc::new(redis::Redis::new(lock)),
        Some("etcd") => Arc::new(etcd::Etcd::new(lock)),
        Some("zk") => Arc::new(zk::Zk::new(url, lock)),
        Some("postgres") => Arc::new(sql::Sql::<sqlx::Postgres>::new(url, lock)?),
        Some("mysql") => Arc::new(sql::Sql::<sqlx::MySql>::new(url, lock)?),
        _ => return Err(Failure::new(format!("no sections at {url}"))),
    })
}
