//! A named way to open a store, which the suite runs its cases on.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use lockkit_core::{Capabilities, Queueing};

use crate::failure::Outcome;
use crate::namespace::{Hook, Namespace};

/// A named way to open a store.
///
/// To run the [`Suite`](crate::Suite) on your own store, implement this trait and [`Namespace`] for it;
/// the example `own_store` shows all of it.
#[async_trait]
pub trait Setup: Debug + Send + Sync + 'static {
    /// The first part of the names of its tests: `memory`, `redis-poll`.
    fn name(&self) -> &str;

    /// What the store can do: the value that its
    /// [`capabilities`](lockkit_core::DistributedLock::capabilities) returns.
    fn capabilities(&self) -> Capabilities;

    /// What its namespaces can do beside opening stores. Cases that need more are listed as skipped.
    fn hooks(&self) -> &[Hook] {
        &[]
    }

    /// Why it cannot be used here, such as a server that is not installed; `None` if it can. Returns
    /// quickly.
    fn missing(&self) -> Option<String> {
        None
    }

    /// Why the case `module::function` is not run here although the setup has all that it needs; `None`
    /// if it is run.
    fn skips(&self, case: &str) -> Option<String> {
        let _ = case;
        None
    }

    /// Whether `LOCKKIT_REQUIRE=all` names it. A setup whose server is downloaded is named by its own
    /// name only: the download may be gone tomorrow.
    fn is_one_of_all(&self) -> bool {
        true
    }

    /// Whether a waiter keeps out those that came later, so that clients that never pause take turns. The default:
    /// where waiters have an order.
    fn takes_turns(&self) -> bool {
        self.capabilities().queueing == Queueing::Fifo
    }

    /// The lease of most cases: short, so that they end soon, but not so short that a busy machine
    /// loses it. The default is 2 s, or the nearest lease that the store can do.
    fn ttl(&self) -> Duration {
        let capabilities = self.capabilities();
        let wished = Duration::from_secs(2).clamp(capabilities.min_ttl, capabilities.max_ttl);
        let step = capabilities.ttl_step.as_nanos().max(1);
        let steps = wished.as_nanos().div_ceil(step);
        u64::try_from(steps * step).map_or(wished, Duration::from_nanos)
    }

    /// Opens a namespace for one case. With `alone` the case breaks things that others would notice, so
    /// it needs its own server.
    ///
    /// # Errors
    /// - [`Failure`](crate::Failure) if there is none; the case fails with it.
    async fn namespace(&self, alone: bool) -> Outcome<Box<dyn Namespace>>;
}
