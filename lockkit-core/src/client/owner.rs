//! Who may re-enter: local to one client, never seen by a store. INV-11.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::client::hold::Hold;
use crate::contract::{ClientId, LockName};
use crate::store::sync::lock;

/// The right to re-enter the locks that it holds.
///
/// Made by [`LockClient::owner`](crate::LockClient::owner) and given to
/// [`Lock::with_owner`](crate::Lock::with_owner). Clones are the same owner. Neither threads nor
/// tasks own anything: two tasks that share one [`Lock`](crate::Lock) without an owner exclude each
/// other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub(crate) client: ClientId,
    pub(crate) id: u64,
}

type Key = (LockName, u64);

/// What each owner of this client holds or is about to hold.
#[derive(Debug, Default)]
pub(crate) struct Owners(Mutex<HashMap<Key, Slot>>);

#[derive(Debug)]
enum Slot {
    /// One acquire of this owner is under way; others of the same owner wait for its end, because
    /// two of them at the store would exclude each other.
    Acquiring(Arc<Notify>),
    Held(Weak<Hold>),
}

/// The answer to a caller that wants a lock.
pub(crate) enum Entry<H> {
    /// The owner holds it.
    Holds(H),
    /// Another acquire of this owner is in progress; retry when this notification fires. It is
    /// registered, so no wake-up is missed.
    Busy(OwnedNotified),
    /// This call acquires the lock, for the owner if there is one.
    Free(Option<Claim>),
}

impl Owners {
    pub(crate) fn enter(self: &Arc<Self>, name: &LockName, owner: u64) -> Entry<Arc<Hold>> {
        let mut slots = lock(&self.0);
        let key = (name.clone(), owner);
        match slots.get(&key) {
            Some(Slot::Acquiring(done)) => {
                return Entry::Busy(Arc::clone(done).notified_owned());
            }
            Some(Slot::Held(hold)) => {
                if let Some(hold) = hold.upgrade() {
                    return Entry::Holds(hold);
                }
            }
            None => {}
        }
        Entry::Free(Some(self.claim_in(&mut slots, key)))
    }

    fn claim_in(self: &Arc<Self>, slots: &mut HashMap<Key, Slot>, key: Key) -> Claim {
        let done = Arc::new(Notify::new());
        slots.insert(key.clone(), Slot::Acquiring(Arc::clone(&done)));
        Claim {
            owners: Arc::clone(self),
            key,
            done,
            held: false,
        }
    }

    /// Claims the place of a hold of `owner` that is to become another one; `None` if it is not this one's.
    pub(crate) fn claim(
        self: &Arc<Self>,
        name: &LockName,
        owner: u64,
        hold: &Hold,
    ) -> Option<Claim> {
        let (mut slots, key) = (lock(&self.0), (name.clone(), owner));
        let is_its = is_of(&slots, &key, hold);
        is_its.then(|| self.claim_in(&mut slots, key))
    }

    /// Forgets the hold of `owner`, if it is still this one.
    pub(crate) fn forget(&self, name: &LockName, owner: u64, hold: &Hold) {
        let (mut slots, key) = (lock(&self.0), (name.clone(), owner));
        if is_of(&slots, &key, hold) {
            slots.remove(&key);
        }
    }
}

/// Whether an owner's hold is this one.
fn is_of(slots: &HashMap<Key, Slot>, key: &Key, hold: &Hold) -> bool {
    matches!(slots.get(key), Some(Slot::Held(weak)) if std::ptr::eq(weak.as_ptr(), hold))
}

/// The single acquire that an owner has under way for one name; ends when it is dropped.
pub(crate) struct Claim {
    owners: Arc<Owners>,
    key: Key,
    done: Arc<Notify>,
    held: bool,
}

impl Claim {
    /// The acquire came to a hold, which the same owner may now re-enter.
    pub(crate) fn held(mut self, hold: &Arc<Hold>) {
        lock(&self.owners.0).insert(self.key.clone(), Slot::Held(Arc::downgrade(hold)));
        self.held = true;
        // A hold that ended before it came in here has not been forgotten.
        if hold.has_ended() {
            self.owners.forget(&self.key.0, self.key.1, hold);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.held {
            lock(&self.owners.0).remove(&self.key);
        }
        self.done.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LockClient, LossReason, memory::MemoryStore};

    #[tokio::test]
    async fn what_has_ended_is_forgotten() {
        let client = LockClient::new(MemoryStore::new()).unwrap();
        let owner = client.owner();
        let lock_a = client.lock("a").unwrap().with_owner(&owner).unwrap();
        let guard = lock_a.acquire().await.unwrap();
        assert_eq!(lock(&client.shared.owners.0).len(), 1);
        assert!(lock_a.acquire().await.is_ok());
        guard.release().await.unwrap();
        assert!(lock(&client.shared.owners.0).is_empty());
    }

    #[tokio::test]
    async fn a_hold_that_ended_at_once_leaves_nothing() {
        let client = LockClient::new(MemoryStore::new()).unwrap();
        let guard = client.lock("a").unwrap().acquire().await.unwrap();
        let owners = &client.shared.owners;
        let Entry::Free(Some(claim)) = owners.enter(guard.name(), 1) else {
            panic!("nobody holds")
        };
        guard.held().lose(LossReason::Expired);
        claim.held(&guard.held().hold);
        assert!(lock(&owners.0).is_empty());
    }
}
