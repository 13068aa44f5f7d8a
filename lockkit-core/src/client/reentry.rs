//! What an owner has of a lock that it asks for.

use std::sync::Arc;

use crate::client::guard::Guard;
use crate::client::hold::Hold;
use crate::client::owner::Entry;
use crate::client::shared::{Held, Shared};
use crate::contract::LockName;

/// Enters a hold of the owner, or claims the lock for it.
pub(crate) fn reenter(shared: &Arc<Shared>, name: &LockName, owner: Option<u64>) -> Entry<Guard> {
    let Some(owner) = owner else {
        return Entry::Free(None);
    };
    loop {
        match shared.owners.enter(name, owner) {
            Entry::Busy(done) => return Entry::Busy(done),
            Entry::Free(claim) => return Entry::Free(claim),
            Entry::Holds(hold) => {
                let shared = Arc::clone(shared);
                let held = Held { shared, hold };
                if held.on(Hold::add_guard).is_ok() {
                    return Entry::Holds(Guard::new(held));
                }
                // It has just ended: what is forgotten here is not found again.
                held.shared.owners.forget(name, owner, &held.hold);
            }
        }
    }
}
