//! What the setups of stores with a server share: the pool of servers, and what runs on a server of
//! another version.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::OnceCell;

use crate::failure::Outcome;

/// One server for all cases that break nothing, and one for each case that does. A server starts when
/// the first case needs it, and stops when its last user drops it.
#[derive(Debug)]
pub(super) struct ServerPool<S> {
    shared: OnceCell<Arc<S>>,
    namespaces: AtomicU32,
}

/// How many namespaces a shared server has: more than a setup has cases.
pub(super) const NAMESPACES: u32 = 1024;

impl<S: Send + Sync> ServerPool<S> {
    /// A pool in which no server runs.
    pub(super) fn new() -> Self {
        Self {
            shared: OnceCell::new(),
            namespaces: AtomicU32::new(0),
        }
    }

    /// The number of the next namespace.
    pub(super) fn number(&self) -> u32 {
        self.namespaces.fetch_add(1, Ordering::Relaxed) % NAMESPACES
    }

    /// A server. `start` starts one: for this case only if it is `alone`, otherwise if none runs yet.
    pub(super) async fn server(
        &self,
        alone: bool,
        start: impl Future<Output = Outcome<S>> + Send,
    ) -> Outcome<Arc<S>> {
        let start = async { start.await.map(Arc::new) };
        if alone {
            return start.await;
        }
        self.shared.get_or_try_init(|| start).await.cloned()
    }
}

/// The modules of cases that another version or make of a server could fail: its scripts, transactions,
/// leases, events, errors and connections. The others test the client, on any server.
const TEST_THE_SERVER: [&str; 15] = [
    "exclusion",
    "queue",
    "extend",
    "sharing",
    "permits",
    "handover",
    "loss",
    "fencing",
    "names",
    "capabilities",
    "admin",
    "ambiguity",
    "outage",
    "residue",
    "cost",
];

/// Why a case is not run on another version or make of a server; `runs` names the setup that runs it.
pub(super) fn tests_the_client(case: &str, runs: &str) -> Option<String> {
    let module = case.split("::").next().unwrap_or_default();
    let skip = !TEST_THE_SERVER.contains(&module);
    skip.then(|| format!("any version of the server will do; `{runs}` runs it"))
}
