//! What the suite runs on.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Capabilities, DistributedLock, LockName};

use crate::case::Case;
use crate::failure::{Failure, Outcome};
use crate::proxy::Proxy;

/// A named way to open a store: what is known of it without touching it, and how to get one.
///
/// Third parties implement this and [`Site`] for their store and hand it to a
/// [`Suite`](crate::Suite); the example `own_store` shows all of it.
#[async_trait]
pub trait Setup: Debug + Send + Sync + 'static {
    /// The first part of the names of its trials: `memory`, `redis-poll`.
    fn name(&self) -> &str;

    /// What the store can do, as its own [`DistributedLock::capabilities`] will say.
    fn capabilities(&self) -> Capabilities;

    /// What its sites can do beside opening stores. Cases that need more are listed as skipped.
    fn hooks(&self) -> &[Hook] {
        &[]
    }

    /// Why it cannot be used here, such as a server that is not installed. Decided without I/O that
    /// takes time; `None` if it can.
    fn missing(&self) -> Option<String> {
        None
    }

    /// Why `case` is not run here although the setup has all that it needs; `None` if it is run.
    fn skips(&self, case: &Case) -> Option<String> {
        let _ = case;
        None
    }

    /// Whether `LOCKKIT_REQUIRE=all` names it. A setup whose server comes over the network from where
    /// it may be gone tomorrow is named by its own name only.
    fn is_one_of_all(&self) -> bool {
        true
    }

    /// The lease of most cases: short, so that they end soon, but not so short that a busy machine
    /// loses it. The default is 2 s, or what the store can do that is nearest.
    fn ttl(&self) -> Duration {
        let capabilities = self.capabilities();
        let wished = Duration::from_secs(2).clamp(capabilities.min_ttl, capabilities.max_ttl);
        let step = capabilities.ttl_step.as_nanos().max(1);
        let steps = wished.as_nanos().div_ceil(step);
        u64::try_from(steps * step).map_or(wished, Duration::from_nanos)
    }

    /// Opens a place to run one case in. `alone`: the case breaks things that others would feel, so
    /// the place must not be shared.
    ///
    /// # Errors
    /// - [`Failure`] if there is none to be had; the case fails with it.
    async fn site(&self, alone: bool) -> Outcome<Box<dyn Site>>;
}

/// Something that a setup can do, beside opening stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hook {
    /// [`Site::url`]: other processes can open the same store.
    Url,
    /// [`Site::wipe`].
    Wipe,
    /// [`Site::restart`].
    Restart,
    /// [`Site::freeze`] and [`Site::thaw`].
    Freeze,
    /// [`Site::open_through_proxy`].
    Proxy,
    /// [`Site::expire_session`].
    ExpireSession,
    /// [`Site::lose_pushes`].
    LosePushes,
    /// [`Site::residue`].
    Residue,
}

impl Hook {
    /// What is missing where it is not there.
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
}

/// A store that runs, for one case. Dropping it takes it down, if it was opened for the case alone.
#[async_trait]
pub trait Site: Debug + Send + Sync {
    /// Opens the store as one more independent client does: with a connection and a session of its
    /// own.
    ///
    /// # Errors
    /// - [`Failure`] if the store cannot be reached.
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>>;

    /// Where other processes find the store.
    fn url(&self) -> Option<String> {
        None
    }

    /// Deletes everything the store keeps, at the store and not through it.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    async fn wipe(&self) -> Outcome {
        Err(absent(Hook::Wipe))
    }

    /// Ends the server without warning and starts it on the same data.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    async fn restart(&self) -> Outcome {
        Err(absent(Hook::Restart))
    }

    /// Stops the server in the middle of whatever it does; connections stay open.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    async fn freeze(&self) -> Outcome {
        Err(absent(Hook::Freeze))
    }

    /// Lets the server go on.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    async fn thaw(&self) -> Outcome {
        Err(absent(Hook::Freeze))
    }

    /// As [`open`](Self::open), with a [`Proxy`] of its own between client and server.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    async fn open_through_proxy(&self) -> Outcome<(Arc<dyn DistributedLock>, Proxy)> {
        Err(absent(Hook::Proxy))
    }

    /// Ends the session of a store that [`open`](Self::open) gave, at the server.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    async fn expire_session(&self, store: &dyn DistributedLock) -> Outcome {
        let _ = store;
        Err(absent(Hook::ExpireSession))
    }

    /// Loses every wake-up of every client from now on, or delivers them again.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be done.
    async fn lose_pushes(&self, lose: bool) -> Outcome {
        let _ = lose;
        Err(absent(Hook::LosePushes))
    }

    /// What the store still keeps of `name` although nobody uses it, in words; token counters do not
    /// count.
    ///
    /// # Errors
    /// - [`Failure`] if it cannot be looked up.
    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let _ = name;
        Err(absent(Hook::Residue))
    }
}

fn absent(hook: Hook) -> Failure {
    Failure::new(hook.what())
}
