//! A named readers-writer lock: many readers, or one writer.

use crate::client::lock::Lock;
use crate::contract::LockName;

/// A lock that many readers may hold together, or one writer alone; it holds nothing, and clones are cheap.
///
/// Both sides are [`Lock`]s, with all that a lock promises. They are served in the order in which they
/// asked, so that neither side starves: a reader that asks after a writer waits for it. Where waiters have
/// no order, readers let a writer that waits go first.
///
/// Each reader has a token of its own, larger than that of the last writer. A resource that is to refuse
/// late writers and late readers keeps two numbers, as the manual shows.
///
/// A reader cannot become a writer: two of them would wait for each other. Release, acquire to write, and
/// look again at what was read.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
/// use lockkit_core::{LockClient, memory::MemoryStore};
///
/// let client = LockClient::new(MemoryStore::new())?;
/// let report = client.rw_lock("report")?;
/// let one = report.read().acquire().await?;
/// let other = report.read().acquire().await?;
/// assert!(report.write().try_acquire().await?.is_none());
/// one.release().await?;
/// other.release().await?;
/// assert!(report.write().try_acquire().await?.is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    read: Lock,
    write: Lock,
}

impl RwLock {
    pub(crate) const fn new(read: Lock, write: Lock) -> Self {
        Self { read, write }
    }

    /// The lock's name.
    #[must_use]
    pub const fn name(&self) -> &LockName {
        self.write.name()
    }

    /// The lock of a reader.
    #[must_use]
    pub fn read(&self) -> Lock {
        self.read.clone()
    }

    /// The lock of the writer.
    #[must_use]
    pub fn write(&self) -> Lock {
        self.write.clone()
    }
}
