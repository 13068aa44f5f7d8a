//! Guarded writes: transactions that the ensemble carries out only while a lock is held.

use lockkit_core::contract::{DistributedLock as _, Ticket};
use lockkit_core::store::section::{Exchange, FencedError};
use lockkit_core::{BackendError, Guard, LockClient, Outcome};
use tokio::time::{Duration, timeout};
use zookeeper_client::{CheckWriteError, CheckWriter, CreateMode, Error, MultiWriteResult};

use crate::backend::ZkStore;
use crate::config::Access;
use crate::error::{BACKEND, Result, fault};
use crate::session::{Session, options};

/// The longest time that a transaction may take.
const LIMIT: Duration = Duration::from_secs(10);

/// One write, or a condition for all.
///
/// # Units and shapes
/// Paths are absolute, inside the chroot of the store. A version counts the changes of a node's data;
/// `None` means any.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Write {
    /// Creates a persistent node.
    Create {
        /// Where.
        path: String,
        /// Its data.
        data: Vec<u8>,
    },
    /// Writes the data of a node.
    Set {
        /// Which.
        path: String,
        /// Its new data.
        data: Vec<u8>,
        /// Only if it has this version.
        version: Option<i32>,
    },
    /// Deletes a node.
    Delete {
        /// Which.
        path: String,
        /// Only if it has this version.
        version: Option<i32>,
    },
    /// Writes nothing, but makes the transaction fail unless the node has this version.
    Check {
        /// Which.
        path: String,
        /// The version.
        version: i32,
    },
}

impl Write {
    /// Creates a persistent node.
    pub fn create(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        let (path, data) = (path.into(), data.into());
        Self::Create { path, data }
    }

    /// Writes the data of a node, whatever its version.
    pub fn set(path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        let (path, data) = (path.into(), data.into());
        let version = None;
        Self::Set {
            path,
            data,
            version,
        }
    }

    /// Deletes a node, whatever its version.
    pub fn delete(path: impl Into<String>) -> Self {
        let (path, version) = (path.into(), None);
        Self::Delete { path, version }
    }

    fn add(&self, writer: &mut CheckWriter<'_>, access: Access) -> Result<(), Error> {
        match self {
            Self::Create { path, data } => {
                writer.add_create(path, data, &options(CreateMode::Persistent, access))
            }
            Self::Set {
                path,
                data,
                version,
            } => writer.add_set_data(path, data, *version),
            Self::Delete { path, version } => writer.add_delete(path, *version),
            Self::Check { path, version } => writer.add_check_version(path, *version),
        }
    }
}

/// The result of a [`Write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Written {
    /// The node was created.
    Created,
    /// The data were written.
    Set {
        /// The version that the node has now.
        version: i32,
    },
    /// The node was deleted.
    Deleted,
    /// The condition was met.
    Checked,
}

/// What a section writes in the transaction that ends its hold, and the last answer.
pub(crate) type Writes = Exchange<Vec<Write>, Vec<Written>>;

/// Writes that the ensemble carries out only while one hold lasts.
///
/// The transaction begins with a check that the node of the hold exists, so that the ensemble refuses a
/// stale holder's writes whatever the clocks say. It is carried out as a whole or not at all.
///
/// # Examples
/// ```no_run
/// use lockkit_core::{Guard, LockClient};
/// use lockkit_zk::{Fenced, FencedError, Write};
///
/// # async fn example(client: LockClient, guard: Guard) -> Result<(), FencedError> {
/// if let Some(fenced) = Fenced::by(&client, &guard) {
///     fenced.write(&[Write::set("/stock/42", "7")]).await?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Source
/// The check of the lock's node is that of the client library's own lock recipe.
#[derive(Debug)]
#[must_use = "nothing is written before `write`"]
pub struct Fenced<'a> {
    store: &'a ZkStore,
    ticket: Ticket,
}

impl<'a> Fenced<'a> {
    /// Writes under the hold of `guard`, which `client` gave; `None` if its store is not ZooKeeper.
    pub fn by(client: &'a LockClient, guard: &Guard) -> Option<Self> {
        let store = client.store()?;
        Some(Self::new(store, guard.ticket().clone()))
    }

    /// Writes under the hold of a ticket that `store` granted.
    pub const fn new(store: &'a ZkStore, ticket: Ticket) -> Self {
        Self { store, ticket }
    }

    /// Carries out the writes if the hold still lasts. Returns one result for each.
    ///
    /// # Errors
    /// - [`FencedError::Fenced`] if the hold has ended; nothing was written.
    /// - [`FencedError::Backend`] with [`Outcome::Rejected`] if a write was refused, for example because its node is
    ///   missing or has another version; nothing was written.
    /// - [`FencedError::Backend`] if the ensemble failed; its outcome says whether it may have been
    ///   carried out.
    ///
    /// # Cancel safety
    /// If it is dropped, it may still be carried out, if the hold still lasts then.
    ///
    /// # Cost
    /// One round trip.
    pub async fn write(&self, writes: &[Write]) -> Result<Vec<Written>, FencedError> {
        let shared = &self.store.shared;
        let contender = shared.contender(self.ticket.holder);
        let contender = contender.ok_or(FencedError::Fenced)?;
        // The node decides, not what this client knows: a hold that is taken for lost may still last.
        let path = contender.held_path().ok_or(FencedError::Fenced)?;
        let hold = (&*contender.session, &*path);
        let written = transact("guarded writes", hold, writes, shared.access, false);
        let address = || self.store.address();
        let late =
            |_| BackendError::timeout(BACKEND, "guarded writes", LIMIT, address().as_deref());
        let written = timeout(LIMIT, written).await.map_err(late)??;
        written.ok_or(FencedError::Fenced)
    }
}

/// Carries out writes if the node of a hold exists, and deletes it with them if they `end` the hold. `None` if there is
/// no such node.
pub(crate) async fn transact(
    operation: &'static str,
    (session, node): (&Session, &str),
    writes: &[Write],
    access: Access,
    end: bool,
) -> Result<Option<Vec<Written>>> {
    let bad = |error: Error| session.error(operation, &error);
    let mut writer = session.client.new_check_writer(node, None).map_err(bad)?;
    for write in writes {
        write.add(&mut writer, access).map_err(bad)?;
    }
    if end {
        writer.add_delete(node, None).map_err(bad)?;
    }
    match writer.commit().await {
        Ok(mut results) => {
            results.truncate(writes.len());
            let written: Result<_> = results.into_iter().map(read).collect();
            written.map(Some)
        }
        Err(
            CheckWriteError::CheckFailed {
                source: Error::NoNode | Error::SessionExpired,
            }
            | CheckWriteError::RequestFailed {
                source: Error::SessionExpired | Error::ClientClosed,
            },
        ) => Ok(None),
        Err(CheckWriteError::OperationFailed { index, source }) => {
            let why = format!("write {index} was refused, and nothing was written: {source}");
            Err(fault(operation, Outcome::Rejected, why))
        }
        Err(
            CheckWriteError::CheckFailed { source } | CheckWriteError::RequestFailed { source },
        ) => Err(bad(source)),
    }
}

fn read(result: MultiWriteResult) -> Result<Written> {
    Ok(match result {
        MultiWriteResult::Create { .. } => Written::Created,
        MultiWriteResult::SetData { stat } => Written::Set {
            version: stat.version,
        },
        MultiWriteResult::Delete => Written::Deleted,
        MultiWriteResult::Check => Written::Checked,
        _ => {
            let why = "the answer is unknown";
            return Err(fault("guarded writes", Outcome::Indeterminate, why));
        }
    })
}
