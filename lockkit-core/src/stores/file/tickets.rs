//! What a store knows of its tickets.

use std::collections::HashMap;

use super::gate::Gate;
use super::lock_file::LockFile;
use super::problem::Problem;
use super::record::Entry;
use crate::contract::{FencingToken, HolderId, Ticket};
use crate::store::Tombstones;

#[derive(Debug, Default)]
pub(super) struct Tickets {
    pub(super) held: HashMap<HolderId, Hold>,
    /// Those that were refused and ask again.
    pub(super) waiting: HashMap<HolderId, Waiting>,
    /// Released ones: an attempt that comes late must not take a lock that no client releases.
    pub(super) tombstones: Tombstones,
}

impl Tickets {
    /// The hold of a ticket whose file is still the one at its path.
    pub(super) fn held_by(&mut self, holder: HolderId) -> Result<Option<&Hold>, Problem> {
        let hold = self.held.get(&holder).filter(|hold| hold.is_ours());
        let Some(hold) = hold else { return Ok(None) };
        if !hold.lock_file.is_in_place()? {
            self.held.remove(&holder);
        }
        Ok(self.held.get(&holder))
    }
}

#[derive(Debug)]
pub(super) struct Waiting {
    /// When it was refused first, in microseconds of the machine's wall clock.
    pub(super) since: u64,
    /// What keeps out those that came later, if it is this ticket that does.
    pub(super) gate: Option<Gate>,
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

    /// Writes that the lock is free. The token stays, also if another program truncated the file.
    pub(super) fn sign_off(&self, ticket: &Ticket) -> Result<(), Problem> {
        let before = self.lock_file.read_of(&ticket.name)?;
        let token = before.token().max(self.token.get());
        let entry = Entry::free(&ticket.name, token);
        self.lock_file.write(&before, entry)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Closing the file would do, were there not children of any thread between `fork` and
        // `exec` that have it open too. In a child itself the lock is the parent's.
        if self.is_ours() {
            let _ = self.lock_file.unlock();
        }
    }
}
