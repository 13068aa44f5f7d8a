//! The store in files, in a directory of its own for each case.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use lockkit_core::file::FileStore;
use lockkit_core::{Capabilities, DistributedLock, LockName};
use tempfile::TempDir;

use crate::failure::Outcome;
use crate::namespace::{Hook, Namespace};
use crate::setup::Setup;
use crate::storage::Storage;

/// Opens a [`FileStore`] in a temporary directory for each case.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct FileSetup;

impl FileSetup {
    /// The file store with its default options: `file`.
    #[must_use]
    pub const fn new() -> Self {
        Self
    }
}

#[async_trait]
impl Setup for FileSetup {
    fn name(&self) -> &str {
        "file"
    }

    fn capabilities(&self) -> Capabilities {
        // Any directory will do: nothing is made in one that exists.
        let store = FileStore::builder(std::env::temp_dir())
            .allow_network_fs(true)
            .build();
        store.map_or_else(|_| Capabilities::new(), |store| store.capabilities())
    }

    fn hooks(&self) -> &[Hook] {
        &[Hook::Url, Hook::Wipe, Hook::Residue]
    }

    fn takes_turns(&self) -> bool {
        true
    }

    async fn namespace(&self, _alone: bool) -> Outcome<Box<dyn Namespace>> {
        Ok(Box::new(FileNamespace {
            dir: Storage::Memory.directory()?,
        }))
    }
}

/// Files below `dir` that this process has open. Only Linux tells.
fn open_handles(dir: &Path) -> Vec<String> {
    let handles = fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    handles
        .filter_map(|handle| fs::read_link(handle.path()).ok())
        .filter(|path| path.starts_with(dir))
        .map(|path| format!("an open handle of {}", path.display()))
        .collect()
}

#[derive(Debug)]
struct FileNamespace {
    dir: TempDir,
}

#[async_trait]
impl Namespace for FileNamespace {
    async fn open(&self) -> Outcome<Arc<dyn DistributedLock>> {
        Ok(Arc::new(FileStore::new(self.dir.path())?))
    }

    fn url(&self) -> Option<String> {
        Some(format!("file:{}", self.dir.path().display()))
    }

    async fn wipe(&self) -> Outcome {
        for entry in fs::read_dir(self.dir.path())? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }

    async fn residue(&self, name: &LockName) -> Outcome<Vec<String>> {
        let store = FileStore::new(self.dir.path())?;
        let lock = store.path(name);
        let mut left = Vec::new();
        for entry in fs::read_dir(self.dir.path())? {
            let path = entry?.path();
            // The file of the lock keeps its token and stays.
            if path != lock {
                left.push(format!("the file {}", path.display()));
            }
        }
        left.extend(open_handles(self.dir.path()));
        Ok(left)
    }
}
