//! A release that the caller carries out, beside the client.

use crate::client::guard::Guard;
use crate::client::outstanding::Outstanding;
use crate::client::shared::Held;
use crate::contract::Result;

/// The release of a lock whose guard is gone, which the caller carries out: by
/// [`Guard::defer_release`].
///
/// When it is dropped, the client releases the lock in the background, as it does for a dropped guard.
/// [`LockClient::drain`](crate::LockClient::drain) waits for it.
#[must_use = "dropping it releases the lock in the background"]
#[derive(Debug)]
pub struct DeferredRelease {
    /// `None` once it was carried out.
    owed: Option<(Held, Outstanding)>,
}

impl Guard {
    /// Ends the hold for this client and leaves its release to the caller: the client does not renew it any
    /// more, and [`lost`](Self::lost) does not fire. For stores that release inside a transaction of the
    /// application.
    ///
    /// # Errors
    /// In each case the guard is gone, as if it had been dropped.
    /// - [`Error::InvalidOption`](crate::Error::InvalidOption) if the hold has other guards, or is to be
    ///   kept after its last one.
    /// - [`Error::Lost`](crate::Error::Lost) if the hold was lost.
    ///
    /// # Cost
    /// No round trip.
    pub fn defer_release(self) -> Result<DeferredRelease> {
        let held = self.held().clone();
        let (_, unfinished) = held.leave(true)?;
        Ok(DeferredRelease::new(held, unfinished))
    }
}

impl DeferredRelease {
    /// Of a hold that has [left](Held::leave) the client.
    pub(crate) const fn new(held: Held, unfinished: Outstanding) -> Self {
        let owed = Some((held, unfinished));
        Self { owed }
    }

    /// The lock was released: the client forgets it, and sends nothing.
    pub fn done(mut self) {
        if let Some((held, _unfinished)) = self.owed.take() {
            held.shared.context.store.forget(held.hold.ticket.holder);
        }
    }
}

impl Drop for DeferredRelease {
    /// Hands the ticket to the reaper. Never blocks or panics. INV-8.
    fn drop(&mut self) {
        if let Some((held, _unfinished)) = self.owed.take() {
            held.release_later();
        }
    }
}
