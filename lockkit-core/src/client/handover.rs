//! A hold that passes from one guard to another: to another process, or to a reader of the same client.

use crate::client::deferred::DeferredRelease;
use crate::client::guard::Guard;
use crate::client::hold::{Hold, HoldOptions};
use crate::client::lock_client::LockClient;
use crate::client::queue::Key;
use crate::client::shared::Held;
use crate::client::try_acquire::try_acquire;
use crate::contract::{Error, FencingToken, HolderId, LockName, Mode, Result};
use crate::store::tag::{read_mode, write_mode};

impl Guard {
    /// Leaves the lock held for another process, which continues the hold with
    /// [`LockClient::adopt`]. Returns the text to give to it.
    ///
    /// Unless the hold is adopted before, its lease ends it: a renewed lease begins anew, of a fixed one the rest is
    /// left. A shortest or longest hold time ends here: the adopter has its own. The text is a key to the lock: do not log it.
    ///
    /// # Errors
    /// In each case the guard is gone, as if it had been dropped.
    /// - [`Error::Unsupported`] if the store cannot hand over.
    /// - [`Error::InvalidOption`] if the hold has other guards, or was [leaked](Guard::leak).
    /// - [`Error::Lost`] if the hold was lost.
    /// - [`Error::Backend`] if the store failed.
    /// - [`Error::NoRuntime`] and [`Error::Shutdown`] as in [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock.
    ///
    /// # Cost
    /// One round trip.
    pub async fn detach(self) -> Result<String> {
        let held = self.held();
        held.shared.context.check_adopts()?;
        let (ticket, sent) = held.on(Hold::renewal)?;
        self.renew(ticket, sent).await?;
        let (holder, token, mode) = (self.holder(), self.token(), self.ticket().mode);
        let text = format!("v1 {holder} {token} {} {}", write_mode(mode), self.name());
        drop(held.leave(false)?);
        held.shared.context.store.forget(holder);
        Ok(text)
    }

    /// Makes a hold to write one to read, without a gap in which another writer could get the lock. The
    /// guard has the same token, and a lease that begins anew.
    ///
    /// A store that [cannot hand over](crate::Capabilities::adopts) leaves the hold to write as it is:
    /// other readers wait for its release.
    ///
    /// # Errors
    /// In each case the guard is gone, as if it had been dropped; after an error of the store the lock is released at
    /// once, also within a shortest hold time.
    /// - [`Error::Unsupported`] if the store has exclusive locks only.
    /// - [`Error::InvalidOption`] if the hold is none to write, has other guards, or was [leaked](Guard::leak).
    /// - [`Error::Lost`] if the hold was lost.
    /// - [`Error::Backend`] if the store failed.
    /// - [`Error::Shutdown`] if the client's runtime has stopped.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock.
    ///
    /// # Cost
    /// One round trip.
    pub async fn downgrade(self) -> Result<Self> {
        let held = self.held().clone();
        let (shared, context) = (&held.shared, &held.shared.context);
        context.check_mode(Mode::Read)?;
        let ticket = self.ticket();
        if !ticket.mode.is_exclusive() {
            return Err(Error::invalid(format!(
                "a hold to {} cannot be made one to read: it shares the lock already",
                ticket.mode
            )));
        }
        if !context.capabilities.adopts {
            self.check()?;
            return Ok(self);
        }
        let options = held.hold.passed_on();
        let ttl = options.lease.ttl();
        let key = Key::new(ticket.name.clone(), Mode::Read, ttl, None);
        // Until it ends, the owner neither holds nor can acquire.
        let claim = options.owner;
        let claim = claim.and_then(|owner| shared.owners.claim(&key.name, owner, &held.hold));
        let _passing = Passing::begin(&held);
        // No task renews it: if it does not arrive, it is released.
        let release = match held.leave(false) {
            Ok((_, unfinished)) => DeferredRelease::new(held.clone(), unfinished),
            Err(error) => {
                if let Some(claim) = claim {
                    claim.held(&held.hold);
                }
                return Err(error);
            }
        };
        let guard = try_acquire(shared, &key, options, Some(self.holder()), None).await?;
        release.done();
        let guard = guard.ok_or_else(|| Error::superseded(self.name(), self.token()))?;
        let hold = &guard.held().hold;
        hold.keep_owed();
        if let Some(claim) = claim {
            claim.held(hold);
        }
        Ok(guard)
    }
}

impl LockClient {
    /// Continues a hold that another process has [detached](Guard::detach), with the same token and the
    /// client's own lease. If that one crashes, the former lease ends the hold where it lasts longer. A text works once.
    ///
    /// # Errors
    /// - [`Error::InvalidOption`] if the text is none of `detach`, or its name is too long with the client's prefix.
    /// - [`Error::Lost`] if the hold has ended, or was adopted before.
    /// - [`Error::Unsupported`] if the store cannot hand over.
    /// - [`Error::Shutdown`] if the client is closed, or its runtime has stopped; nothing was done.
    /// - [`Error::Backend`] if the store failed. A lock that was adopted all the same is released; else the text
    ///   still works, until the lease of the hold ends.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock, if it was adopted.
    ///
    /// # Cost
    /// One round trip.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkit_core::Result<()> {
    /// use lockkit_core::{LockClient, memory::MemoryStore};
    ///
    /// let store = MemoryStore::new();
    /// let (old, new) = (LockClient::new(store.clone())?, LockClient::new(store)?);
    /// let guard = old.lock("migration")?.acquire().await?;
    /// let token = guard.token();
    /// let text = guard.detach().await?;
    /// let guard = new.adopt(&text).await?;
    /// assert_eq!(guard.token(), token);
    /// assert!(new.adopt(&text).await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn adopt(&self, text: &str) -> Result<Guard> {
        let shared = &self.shared;
        shared.context.check_adopts()?;
        if shared.is_closing() {
            return Err(Error::Shutdown);
        }
        let Some((holder, token, mode, name)) = read_detached(text) else {
            return Err(Error::invalid(
                "the text does not come from `Guard::detach`",
            ));
        };
        let options = HoldOptions {
            // The text does not say it.
            former: shared.context.capabilities.max_ttl,
            ..shared.options
        };
        let (stored, ttl) = (shared.context.stored(&name)?, options.lease.ttl());
        let key = Key::new(stored, mode, ttl, None);
        let guard = try_acquire(shared, &key, options, Some(holder), None).await?;
        guard.ok_or_else(|| Error::superseded(&name, token))
    }
}

/// A hold on its way from one guard to another: one of the client's holds until it has arrived.
struct Passing<'a>(&'a Held);

impl<'a> Passing<'a> {
    fn begin(held: &'a Held) -> Self {
        held.shared.queues.hold_began(&held.hold.ticket.name);
        Self(held)
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        let Held { shared, hold } = self.0;
        shared.queues.hold_ended(&hold.ticket.name);
    }
}

/// What another process must know, of `v1 {holder} {token} {mode} {name}`.
fn read_detached(text: &str) -> Option<(HolderId, FencingToken, Mode, LockName)> {
    let mut parts = text.strip_prefix("v1 ")?.splitn(4, ' ');
    let (holder, token) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let mode = read_mode(parts.next()?)?;
    Some((holder, token, mode, LockName::new(parts.next()?).ok()?))
}
