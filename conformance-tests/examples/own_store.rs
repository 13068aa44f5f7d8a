//! Runs the conformance suite on a store of one's own.
//!
//! `MyStore` stands for the store of a third party. Put the same into `tests/conformance.rs` of its
//! crate, with `harness = false`, and `cargo test` runs every case:
//! `cargo run -p conformance-tests --example own_store -- fencing`.

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use conformance_tests::{Hook, Namespace, Outcome, Setup, Suite};
use lockkit_core::memory::MemoryStore as MyStore;
use lockkit_core::{Capabilities, DistributedLock};

/// What is known of the store without touching it.
#[derive(Debug)]
struct MySetup;

#[async_trait]
impl Setup for MySetup {
    fn name(&self) -> &str {
        "my-store"
    }

    fn capabilities(&self) -> Capabilities {
        MyStore::new().capabilities()
    }

    // What the namespace below can do beside opening the store. Cases that need more are listed as
    // ignored, with the reason.
    fn hooks(&self) -> &[Hook] {
        &[Hook::Wipe]
    }

    // A store with a server would start one here, or hand out one that all cases share.
    async fn namespace(&self, _alone: bool) -> Outcome<Box<dyn Namespace>> {
        Ok(Box::new(MyNamespace(MyStore::new())))
    }
}

/// A store that runs.
#[derive(Debug)]
struct MyNamespace(MyStore);

#[async_trait]
impl Namespace for MyNamespace {
    // Called once for each client of a case: each gets a connection of its own.
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        Ok(Arc::new(self.0.connect()))
    }

    async fn wipe(&self) -> Outcome {
        self.0.wipe();
        Ok(())
    }
}

fn main() -> ExitCode {
    Suite::new().setup(MySetup).run()
}
