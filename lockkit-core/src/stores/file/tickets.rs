//! What a store knows of its tickets.

use std::collections::HashMap;
use std::fs::File;

use super::lock_file::LockFile;
use crate::contract::Tombstones;
use crate::contract::holder::HolderId;
use crate::contract::token::FencingToken;

#[derive(Debug, Default)]
pub(super) struct Tickets {
    pub(super) held: HashMap<HolderId, Hold>,
    /// Released ones: an attempt that comes late must not take a lock that no client releases.
    pub(super) tombstones: Tombstones,
}

/// A lock that this store holds: its file, open and locked.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) lock_file: LockFile,
    pub(super) token: FencingToken,
    /// The process that took it. A child by `fork` has a copy of everything here, and no hold.
    pub(super) pid: u32,
}

impl Hold {
    /// Whether this process took it.
    pub(super) fn is_ours(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Another descriptor of the locked file.
    pub(super) fn duplicate(&self) -> Option<File> {
        self.lock_file.file.try_clone().ok()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Closing the file would do, were there not children of any thread between `fork` and
        // `exec` that have it open too. In a child itself the lock is the parent's.
        if self.is_ours() {
            let _ = self.lock_file.file.unlock();
        }
    }
}
