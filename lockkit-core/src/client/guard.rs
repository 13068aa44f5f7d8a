//! The handle of a hold.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::client::hold::Hold;
use crate::client::label::check_note;
use crate::client::outstanding::Outstanding;
use crate::client::release::release;
use crate::client::shared::Held;
use crate::contract::{
    BackendError, DistributedLock, Error, FencingToken, HolderId, LockName, LossReason, Result,
    Ticket, Work,
};
use crate::time::clock::Moment;
use crate::time::lease::Lease;

/// Holds a lock. The hold ends with the last guard of it, or when it is lost.
///
/// Dropping a guard releases in the background; [`release`](Self::release) waits for the response and
/// returns whether the lock was held until then. Nothing is promised about data that a guard would
/// protect, and it derefs to none: a process that is paused can still write after its lease ended.
/// What stops that write is the [`token`](Self::token).
///
/// A guard that is forgotten with `mem::forget` is renewed for ever, unless a
/// [`with_max_hold`](crate::Lock::with_max_hold) limit ends it.
#[must_use = "a guard that is not kept releases its lock at once"]
pub struct Guard {
    held: Held,
    /// Its part of the hold has ended, and dropping it does nothing.
    ended: bool,
}

impl Guard {
    /// The guard that was counted for this caller.
    pub(crate) const fn new(held: Held) -> Self {
        let ended = false;
        Self { held, ended }
    }

    pub(crate) const fn held(&self) -> &Held {
        &self.held
    }

    /// Ends this guard, as [`Held::drop_guard`].
    fn end(&mut self) -> Result<Option<(Moment, Outstanding)>> {
        self.ended = true;
        self.held.drop_guard()
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.held().hold.name
    }

    /// The fencing token, the same for all guards of this hold.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.held().hold.token
    }

    /// The identity of this hold in the store.
    #[must_use]
    pub fn holder(&self) -> HolderId {
        self.held().hold.ticket.holder
    }

    /// The ticket that was granted, for guarded writes inside the store.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.held().hold.ticket
    }

    /// The store that keeps the lock, with its decorators.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn DistributedLock> {
        &self.held().shared.context.store
    }

    /// How many guards this hold has.
    #[must_use]
    pub fn guard_count(&self) -> u32 {
        self.held().hold.guards()
    }

    /// How long the lock is surely held without another renewal; zero if it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held().remaining()
    }

    /// Why the lock is lost when [`remaining`](Self::remaining) is over. For the command.
    #[doc(hidden)]
    #[must_use]
    pub fn next_loss(&self) -> LossReason {
        self.held().hold.next_loss()
    }

    /// Why the last renewal failed; `None` if none did, and once one succeeds again.
    #[must_use]
    pub fn renewal_failure(&self) -> Option<BackendError> {
        self.held().hold.failure()
    }

    /// Returns `Ok` while the lock is held, by the clock and without a round trip.
    ///
    /// # Errors
    /// - [`Error::Lost`] if the lease has ended or the store has said that the hold is gone.
    pub fn check(&self) -> Result<()> {
        self.held().check()
    }

    /// Waits until the lock is lost; for ever if it is released: select it against the work, or end a
    /// task that waits for it.
    ///
    /// It is ready before the store can grant the lock to another client, even if the store does not respond or the
    /// client's runtime is blocked. After a suspend of the
    /// machine it takes up to a second. Polled outside a Tokio runtime, or on one without timers, it relies
    /// on the client's runtime, which must not stand still then. To find out that there are no timers calls the panic
    /// hook, and ends a program that aborts on a panic.
    ///
    /// # Cancel safety
    /// Cancel safe. The future borrows nothing and may outlive the guard; once the lock is released it
    /// keeps nothing of the client.
    pub fn lost(&self) -> impl Future<Output = LossReason> + Send + use<> {
        self.held().clone().lost()
    }

    /// Runs `work` and drops it at its next await if the lock is lost.
    ///
    /// # Errors
    /// - [`Error::Lost`] if the lock was lost before the work ended. The work may have been done, in part
    ///   or, if the lease ended during its last step, in whole: a caller that repeats it must be able to.
    ///
    /// # Cancel safety
    /// As cancel safe as `work`.
    pub async fn protect<F: Future>(&self, work: F) -> Result<F::Output> {
        protect(|| self.check(), self.lost(), work).await
    }

    /// Enters the lock again: another guard of the same hold, with the same token.
    ///
    /// The lock is free again when all guards are gone.
    ///
    /// # Errors
    /// - [`Error::Lost`] if the hold was lost: a hold never comes back.
    ///
    /// # Cost
    /// No round trip.
    pub fn reenter(&self) -> Result<Self> {
        self.held().on(Hold::add_guard)?;
        Ok(Self::new(self.held().clone()))
    }

    /// Prolongs a fixed lease, so that it ends `ttl` from now, but never sooner than before.
    ///
    /// Where the store sets a shorter lease, because it is a session's or cannot be changed, the client
    /// renews it until then.
    ///
    /// # Errors
    /// - [`Error::InvalidOption`] if the lease is renewed by the client.
    /// - [`Error::Unsupported`] if the store cannot do `ttl`.
    /// - [`Error::Lost`] if the hold was lost.
    /// - [`Error::Backend`] if the store failed. The client goes on asking for the longer lease
    ///   for as long as the lock is held.
    /// - [`Error::NoRuntime`] and [`Error::Shutdown`] as in [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Cancel safety
    /// Cancel safe; the lease may have been prolonged at the store without the guard knowing.
    ///
    /// # Cost
    /// One round trip; none if the lease lasts that long anyway.
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        let held = self.held();
        let context = &held.shared.context;
        context.check_lease(Lease::fixed(ttl))?;
        match held.on(|hold| hold.promise(ttl))? {
            Some((ticket, sent)) => self.renew(ticket, sent).await,
            None => Ok(()),
        }
    }

    /// Sends a renewal that was made at `sent`, out of turn.
    pub(crate) async fn renew(&self, ticket: Ticket, sent: Moment) -> Result<()> {
        let held = self.held();
        let context = &held.shared.context;
        let (asked, no_answer) = (ticket.ttl, context.timed_out("renew", context.timeout));
        let renew = move |store: Arc<dyn DistributedLock>| async move {
            store.renew(&[ticket]).await.pop().unwrap_or(Err(no_answer))
        };
        let answer = match context.request("renew", renew).await {
            Ok(renewal) => Ok(renewal),
            Err(Error::Backend(error)) => Err(error),
            Err(error) => return Err(error),
        };
        held.follow(held.hold.answered(sent, asked, answer.clone()));
        answer?;
        held.check()
    }

    /// Gives the hold a note in place of its last one: what operators, and programs that ask for the leader of
    /// an [`Election`](crate::Election), read of it. At most 512 bytes, without control characters.
    ///
    /// # Errors
    /// - [`Error::InvalidOption`] if the text is too long or has control characters.
    /// - [`Error::Unsupported`] if the store keeps no notes.
    /// - [`Error::Lost`] if the hold was lost.
    /// - [`Error::Backend`] if the store failed. The note may have been set.
    /// - [`Error::NoRuntime`] and [`Error::Shutdown`] as in [`Lock::inspect`](crate::Lock::inspect).
    ///
    /// # Cancel safety
    /// Cancel safe; the note may have been set.
    ///
    /// # Cost
    /// One round trip.
    pub async fn note(&self, text: &str) -> Result<()> {
        let held = self.held();
        let context = &held.shared.context;
        check_note(text)?;
        context.check_notes()?;
        held.check()?;
        let (ticket, text) = (self.ticket().clone(), text.to_owned());
        let note =
            move |store: Arc<dyn DistributedLock>| async move { store.note(&ticket, &text).await };
        if !context.request("note", note).await? {
            held.lose(LossReason::Superseded);
        }
        held.check()
    }

    /// Releases the lock. Returns `Ok` if it was held until now.
    ///
    /// While the hold has other guards, only this guard ends. Then `Ok` says that the lock is still held.
    ///
    /// # Errors
    /// - [`Error::Lost`] if the hold had ended before: what was written under it may have been
    ///   written while another held the lock.
    /// - [`Error::Backend`] if the store did not respond in time. The release goes on in the
    ///   background until the store responds or the lease must have ended.
    /// - [`Error::Shutdown`] if the client's runtime has stopped.
    ///
    /// # Cancel safety
    /// Cancel safe: the release goes on in the background.
    ///
    /// # Cost
    /// One round trip for the last guard, none for the others.
    pub async fn release(mut self) -> Result<()> {
        match self.end()? {
            None => Ok(()),
            Some((until, unfinished)) => release(&self.held, until, unfinished, None).await,
        }
    }

    /// Releases the lock, and has the store do this work in the step that ends the hold. For authors of
    /// stores.
    ///
    /// The work is done at most once: a request that is repeated finds no hold any more. After a failure the
    /// release goes on in the background without the work.
    ///
    /// # Errors
    /// - [`Error::Lost`] if the hold had ended before: the work was not done.
    /// - [`Error::InvalidOption`] if the hold has other guards, or is to be kept after its last one. This one is gone,
    ///   and the work was not done.
    /// - [`Error::Backend`] if the store failed. The work may have been done if the outcome is
    ///   [`Indeterminate`](crate::Outcome::Indeterminate).
    ///
    /// # Cancel safety
    /// The work may still be done. The release goes on in the background.
    ///
    /// # Cost
    /// One round trip.
    #[doc(hidden)]
    pub async fn release_with(mut self, work: Work) -> Result<()> {
        let (until, unfinished) = self.held.leave(true)?;
        self.ended = true;
        release(&self.held, until, unfinished, Some(work)).await
    }

    /// Keeps the lock until its lease ends, without a guard; with a [shortest hold time](crate::Lock::with_min_hold)
    /// until that has passed, too.
    ///
    /// It is not renewed for longer once the other guards of the hold are gone. Where the lease is a session's,
    /// the client releases the lock at the time at which a lease of its own would have ended.
    pub fn leak(mut self) {
        self.held.hold.leak();
        // A hold that was lost has nothing to leak.
        let _ = self.end();
    }
}

/// Runs `work` for as long as `check` succeeds, and drops it when `lost` is ready.
#[expect(clippy::future_not_send, reason = "it is where the work is")]
pub(crate) async fn protect<F: Future, L>(
    check: impl Fn() -> Result<()>,
    lost: impl Future<Output = L>,
    work: F,
) -> Result<F::Output> {
    let (mut lost, mut work) = (pin!(lost), pin!(work));
    poll_fn(|context| {
        // Before each step of the work, so that a process that was stopped does not begin another.
        if let Err(lost) = check() {
            return Poll::Ready(Err(lost));
        }
        if let Poll::Ready(value) = work.as_mut().poll(context) {
            return Poll::Ready(check().map(|()| value));
        }
        match lost.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(check().and(Err(Error::Shutdown))),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

impl Drop for Guard {
    /// Hands the ticket of the last guard to the reaper. Never blocks or panics. INV-8.
    fn drop(&mut self) {
        if !self.ended
            && let Ok(Some(_unfinished)) = self.end()
        {
            self.held.release_later();
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}
