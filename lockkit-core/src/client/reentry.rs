//! What an owner has of a lock that it asks for.

use std::sync::Arc;

use tokio::sync::futures::OwnedNotified;

use crate::client::guard::Guard;
use crate::client::hold::Hold;
use crate::client::owner::{Claim, Entry};
use crate::client::shared::{Held, Shared};
use crate::contract::LockName;

/// The same, and what follows.
pub(crate) enum Reentry {
    /// There is no owner.
    None,
    /// It holds the lock: another guard of that hold.
    Done(Guard),
    /// Another call of it acquires the lock; notified when that has ended.
    Busy(OwnedNotified),
    /// Nothing: this call acquires the lock.
    Claimed(Claim),
}

/// Enters a hold of the owner, or claims the lock for it.
pub(crate) fn reenter(shared: &Arc<Shared>, name: &LockName, owner: Option<u64>) -> Reentry {
    let Some(owner) = owner else {
        return Reentry::None;
    };
    loop {
        match shared.owners.enter(name, owner) {
            Entry::Busy(done) => return Reentry::Busy(done),
            Entry::Claimed(claim) => return Reentry::Claimed(claim),
            Entry::Holds(hold) => {
                let shared = Arc::clone(shared);
                let held = Held { shared, hold };
                if held.on(Hold::add_guard).is_ok() {
                    return Reentry::Done(Guard::new(held));
                }
                // It has just ended: what is forgotten here is not found again.
                held.shared.owners.forget(name, owner, &held.hold);
            }
        }
    }
}
