//! A store that runs, for one case.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::{DistributedLock, LockName};

use crate::failure::{Failure, Outcome};

/// Something that a namespace can do, beside opening stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hook {
    /// [`Namespace::url`]: other processes can open the same store.
    Url,
    /// [`Namespace::wipe`].
    Wipe,
    /// [`Server::restart`] of [`Namespace::server`].
    Restart,
    /// [`Server::freeze`] and [`Server::thaw`] of [`Namespace::server`].
    Freeze,
    /// [`Namespace::address`] and [`Namespace::open_at`].
    Proxy,
    /// [`Namespace::expire_session`].
    ExpireSession,
    /// [`Namespace::lose_pushes`].
    LosePushes,
    /// [`Namespace::residue`].
    Residue,
}

impl Hook {
    /// What a setup without this hook lacks.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::Url => "no other process can open this store",
            Self::Wipe => "the setup cannot wipe the store",
            Self::Restart => "there is no server to restart",
            Self::Freeze => "there is no server to freeze",
            Self::Proxy => "there is no network in between",
            Self::ExpireSession => "there is no session to end",
            Self::LosePushes => "the setup cannot lose wake-ups",
            Self::Residue => "the setup cannot look for what is left behind",
        }
    }

    /// The error of a namespace without this hook.
    #[must_use]
    pub fn absent(self) -> Failure {
        Failure::new(self.what())
    }
}

/// A server that a case can restart and freeze.
#[async_trait]
pub trait Server: Debug + Send + Sync {
    /// Kills the server and starts it on the same data.
    ///
    /// # Errors
    /// - [`Failure`] if it does not come back.
    async fn restart(&self) -> Outcome;

    /// The numbers of its processes. A restart replaces all of them.
    fn pids(&self) -> Vec<u32>;

    /// Stops the server in the middle of its work. Its connections stay open.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be stopped.
    fn freeze(&self) -> Outcome;

    /// Lets a frozen server continue.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot continue.
    fn thaw(&self) -> Outcome;
}

/// A part of a store in which one case is alone with its names, such as a database, a schema or a
/// directory. Dropping it stops the store if it was started for this case only.
#[async_trait]
pub trait Namespace: Debug + Send + Sync {
    /// Opens the store as one more independent client does: with its own connection and session.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>>;

    /// The URL with which other processes open the store.
    fn url(&self) -> Option<String> {
        None
    }

    /// Deletes everything in the store, without using the store under test.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    async fn wipe(&self) -> Outcome {
        Err(Hook::Wipe.absent())
    }

    /// The server, if the case may restart and freeze it.
    fn server(&self) -> Option<&dyn Server> {
        None
    }

    /// The address of the server, for a proxy in front of it.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// As [`open`](Self::open), at another address that leads to the same server.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    async fn open_at(&self, address: SocketAddr) -> Outcome<Arc<dyn DistributedLock>> {
        let _ = address;
        Err(Hook::Proxy.absent())
    }

    /// Ends the session of a store that [`open`](Self::open) returned, at the server.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    async fn expire_session(&self, store: &dyn DistributedLock) -> Outcome {
        let _ = store;
        Err(Hook::ExpireSession.absent())
    }

    /// Drops every wake-up of every client from now on, or delivers them again.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    async fn lose_pushes(&self, lose: bool) -> Outcome {
        let _ = lose;
        Err(Hook::LosePushes.absent())
    }

    /// What the store still keeps of an unused `name`, in words. Token counters do not count.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be looked up.
    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let _ = name;
        Err(Hook::Residue.absent())
    }
}
