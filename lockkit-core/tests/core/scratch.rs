//! A directory of locks for one test.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use lockkit_core::contract::Ticket;
use lockkit_core::file::FileStore;
use lockkit_core::{ClientId, HolderId, LockName};

/// A directory that goes when the test ends.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        let path = std::env::temp_dir().join(format!("lockkit-{}", ClientId::random()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn store(&self) -> FileStore {
        FileStore::new(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::new(text).unwrap()
}

pub(crate) fn ticket(text: &str) -> Ticket {
    let holder = HolderId::new(ClientId::random(), 1);
    Ticket::new(name(text), holder, Duration::from_secs(30))
}
